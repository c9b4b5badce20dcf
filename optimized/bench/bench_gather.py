"""Eviction where heads keep different numbers of entries, beside a loop over the heads."""

import torch
from torch import Tensor

import optimized as kv
from optimized.bench.timing_harness import Case, Inputs, normal

HEADS, WIDTH, TOKENS = 8, 128, 32768


def ragged() -> Inputs:
    """Return a cache, and a mask that keeps different numbers of entries in each head."""
    scores = normal(2, 1, HEADS, TOKENS) + torch.linspace(-1, 1, HEADS)[:, None]
    return dict(
        keys=normal(0, 1, HEADS, TOKENS, WIDTH),
        values=normal(1, 1, HEADS, TOKENS, WIDTH),
        kept=kv.retain(scores, ratio=0.9, scope="layer"),
    )


def one_by_one(keys: Tensor, values: Tensor, kept: Tensor) -> list[Tensor]:
    """Index each head by its own mask."""
    heads = zip(kept[0], keys[0], values[0], strict=True)
    return [rows[mask] for mask, *both in heads for rows in both]


SHAPE = f"[1, {HEADS}, {TOKENS}, {WIDTH}] float32, 90% removed, heads apart"
CASES = [Case("evict", SHAPE, ragged, kv.evict, one_by_one, "one head after another")]
