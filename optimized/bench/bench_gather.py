"""Eviction: the kept keys and values of 8 heads of 128 channels, copied out of the cache.

The slow side is the simplest implementation: indices in the order of scores, expanded over the
channels and gathered. Both sides are given the kept tokens; where selection is timed too, the slow
side is `topk` and the same gather. `--threads 2` shows whether threads wait for one another.
"""

from functools import partial

import torch
from torch import Tensor

import optimized as kv
from optimized.bench.timing_harness import Case, Inputs, normal

HEADS, WIDTH = 8, 128
TOKENS = (4096, 8192, 16384, 32768)
RATIOS = (0.5, 0.9)


def layer(tokens: int, ratio: float) -> Inputs:
    """Return a cache and its kept tokens, as a mask and as positions sorted by score."""
    scores, keep = normal(2, 1, HEADS, tokens), kv.kept_count(tokens, ratio)
    return dict(
        keys=normal(0, 1, HEADS, tokens, WIDTH),
        values=normal(1, 1, HEADS, tokens, WIDTH),
        kept=kv.retain(scores, keep=keep),
        positions=scores.argsort(dim=-1, descending=True, stable=True)[..., :keep],
    )


def evicted(keys: Tensor, values: Tensor, kept: Tensor, positions: Tensor) -> object:  # noqa: ARG001
    """Return the kept entries by this project's `evict`."""
    return kv.evict(keys, values, kept)


def gathered(keys: Tensor, values: Tensor, kept: Tensor, positions: Tensor) -> tuple[Tensor, ...]:  # noqa: ARG001
    """Return the kept rows by a gather with one index for every number."""
    index = positions[..., None].expand(*positions.shape, keys.shape[-1])
    return keys.gather(-2, index), values.gather(-2, index)


def scored(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return a cache and its scores, some of which are equal."""
    cache = (normal(seed, 1, HEADS, tokens, WIDTH).to(dtype) for seed in (0, 1))
    scores = normal(2, 1, HEADS, tokens).to(dtype)
    return dict(zip(("keys", "values", "scores"), (*cache, scores), strict=True))


def retained(keys: Tensor, values: Tensor, scores: Tensor, keep: int) -> object:
    """Select and evict as this project does."""
    return kv.evict(keys, values, kv.retain(scores, keep=keep))


def selected(keys: Tensor, values: Tensor, scores: Tensor, keep: int) -> tuple[Tensor, ...]:
    """Take the largest scores and gather."""
    return gathered(keys, values, scores, scores.topk(keep, -1).indices)


def ragged(tokens: int) -> Inputs:
    """Return a cache, and a mask that keeps different numbers of entries in each head."""
    scores = normal(2, 1, HEADS, tokens) + torch.linspace(-1, 1, HEADS)[:, None]
    return dict(
        keys=normal(0, 1, HEADS, tokens, WIDTH),
        values=normal(1, 1, HEADS, tokens, WIDTH),
        kept=kv.retain(scores, ratio=0.9, scope="layer"),
    )


def one_by_one(keys: Tensor, values: Tensor, kept: Tensor) -> list[Tensor]:
    """Index each head by its own mask."""
    heads = zip(kept[0], keys[0], values[0], strict=True)
    return [rows[mask] for mask, *both in heads for rows in both]


RAGGED = 32768
CASES = [
    Case(
        "evict",
        f"[1, {HEADS}, {RAGGED}, {WIDTH}] float32, 90% removed, heads apart",
        lambda: ragged(RAGGED),
        kv.evict,
        one_by_one,
        "one head after another",
    ),
    *(
        Case(
            "evict",
            f"[1, {HEADS}, {tokens}, {WIDTH}] float32, {ratio:.0%} removed",
            lambda tokens=tokens, ratio=ratio: layer(tokens, ratio),
            evicted,
            gathered,
            "score-order gather",
        )
        for ratio in RATIOS
        for tokens in TOKENS
    ),
    *(
        Case(
            "retain + evict",
            f"[1, {HEADS}, {tokens}, {WIDTH}] {str(dtype)[6:]}, {ratio:.0%} removed",
            partial(scored, tokens, dtype),
            partial(retained, keep=kv.kept_count(tokens, ratio)),
            partial(selected, keep=kv.kept_count(tokens, ratio)),
            "topk and gather",
        )
        for dtype in (torch.float32, torch.bfloat16)
        for ratio in RATIOS
        for tokens in TOKENS
    ),
]
