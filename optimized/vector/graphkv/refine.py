"""GraphKV's refinement, in batches of graphs or sources that fit into a CPU's cache."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from optimized._dispatch import kernel_on_gpu
from optimized.vector.graphkv.decay import banish, lower, scaled
from optimized.vector.graphkv.graph import (
    EDGES,
    FEWEST,
    candidates,
    cosine_edge_function,
    source_tokens,
    strongest,
)
from reference.contract import checks
from reference.graphkv.graph import group_mean, neighbour_count, source_count
from reference.precision import widen, widest

BYTES = 12
"""Bytes of an edge: its weight, the product of two lengths, and the weight without barred ones."""


@kernel_on_gpu
def graphkv_refine(
    scores: Tensor,
    keys: Tensor,
    keep: int,
    count: int,
    protected: Tensor | None,
    *,
    queries: Tensor | None,
    values: Tensor | None,
    kind: str,
    fraction: float,
    rounds: int,
    strength: float,
    rule: str,
    signal: str,
    per_head: bool,
    spare_sources: bool,
    clamp: bool,
    exclude_window: bool,
    adaptive: bool,
) -> Tensor:
    if not scores.numel():
        return scores.clone()
    ends: dict[str, Any] = {"k": keys, "q": queries, "v": values}
    if "q" in kind:
        ends["q"] = group_mean(ends["q"], keys)
    ends = {which: ends[which] for which in kind}
    if adaptive:
        count = neighbour_count(count, scores.shape[-1])
    score = widen(scores)
    if not per_head:
        score, ends = score.mean(-2), {name: whole_rows(x) for name, x in ends.items()}
        protected = protected.any(-2) if protected is not None else None
    chosen = source_tokens(score, min(source_count(keep, fraction), score.shape[-1]), protected)
    acting = torch.ones_like(chosen, dtype=torch.bool)
    barred = torch.zeros_like(score, dtype=torch.bool)
    if protected is not None:
        acting, barred = _acting(chosen, keep, fraction, protected, exclude_window), protected
        # a rank that is not a source of this graph repeats the first one, and reaches nothing
        chosen = torch.where(acting, chosen, chosen[..., :1])
    if spare_sources:
        barred = barred.scatter(-1, chosen, True)
    flat = [x[None].flatten(0, -2) for x in (chosen, acting, barred)]
    flat += [ends[name][None].flatten(0, -3) for name in kind]
    room = EDGES if scores.is_cpu else 1024 * EDGES
    graph = max(1, keys.nbytes // score[..., 0].numel())  # half of the bytes of its keys and values
    most = max(1, graph // (BYTES * score.shape[-1]))
    several = max(1, min(room, most * score.numel()) // (chosen.shape[-1] * score.shape[-1]))
    parts = zip(*(x.split(several) for x in flat), strict=True)
    how = {"decay": (strength, rule), "enhance": (-strength, "product"), "evict": (1, "evict")}
    left = partial(_left, count=count, clamp=clamp, how=how[signal], room=room, most=most)
    factor = torch.cat([left(*part) for part in parts]).view(score.shape)
    if signal == "evict":
        refined = banish(score, (factor == 0)[..., None, :], rounds)
    else:
        refined = scaled(score, factor, rounds)
    if not per_head:
        refined = refined[..., None, :].expand(scores.shape)
    refined = refined.to(scores.dtype).contiguous()
    if signal != "evict":
        checks.refuse_overflow("scores", refined)
    return refined


def whole_rows(vectors: Tensor) -> Tensor:
    """Return the heads of each token side by side, widened, in one copy."""
    apart = vectors.movedim(-3, -2)
    wide = torch.promote_types(vectors.dtype, torch.float32)
    return apart.to(wide, memory_format=torch.contiguous_format).flatten(-2)


def _left(
    chosen: Tensor,
    acting: Tensor,
    barred: Tensor,
    start: Tensor,
    end: Tensor,
    *,
    count: int,
    clamp: bool,
    how: tuple[float, str],
    room: int,
    most: int,
) -> Tensor:
    """Return the factor of one round for each token of some graphs."""
    factor = torch.ones(barred.shape, dtype=widest(start, end), device=barred.device)
    if not count:
        return factor
    edges = cosine_edge_function(start, end, clamp)
    batch = min(most, max(FEWEST, room // barred.numel()))
    for sources, here in zip(chosen.split(batch, -1), acting.split(batch, -1), strict=True):
        weights = candidates(edges(sources), sources, barred)
        found, places = strongest(weights, count)
        found = found.masked_fill(~here[..., None], -torch.inf)
        factor = lower(factor, found, places, *how)
    return factor


def _acting(
    chosen: Tensor, keep: int, fraction: float, protected: Tensor, exclude_window: bool
) -> Tensor:
    """Return the mask of ranked tokens that are sources: within its content and its own share."""
    taken = protected.sum(-1, keepdim=True)
    sources = protected.shape[-1] - taken
    if exclude_window:
        sizes, which = taken.unique(return_inverse=True)
        shares = [source_count(keep, fraction, size) for size in sizes.tolist()]
        sources = torch.minimum(sources, torch.tensor(shares, device=sources.device)[which])
    return torch.arange(chosen.shape[-1], device=chosen.device) < sources
