"""GraphKV end to end: all graphs of a call at once."""

from typing import Any

import torch
from torch import Tensor

from optimized.vector.graphkv.decay import banish, decay, enhance
from optimized.vector.graphkv.graph import cosine, neighbours
from reference import errors
from reference.graphkv.graph import group_mean, neighbour_count, source_count, source_tokens
from reference.graphkv.refine import concatenate_heads
from reference.precision import widen


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
    start, end = group_mean(ends[kind[0]], keys), group_mean(ends[kind[1]], keys)
    if adaptive:
        count = neighbour_count(count, scores.shape[-1])
    score = widen(scores)
    if not per_head:
        score, start, end = score.mean(-2), concatenate_heads(start), concatenate_heads(end)
        protected = protected.any(-2) if protected is not None else None
    chosen = source_tokens(score, min(source_count(keep, fraction), score.shape[-1]), protected)
    acting = None
    if protected is not None:
        acting = _acting(chosen, keep, fraction, protected, exclude_window)
        # a rank that is no source in this graph doubles the first one, and reaches nothing
        chosen = torch.where(acting, chosen, chosen[..., :1])
    weights = cosine(start, end, chosen, clamp)
    reached = neighbours(weights, chosen, count, protected, spare_sources)
    if acting is not None:
        reached &= acting[..., None]
    if signal == "decay":
        refined = decay(score, weights, reached, rounds, strength, rule)
    elif signal == "enhance":
        refined = enhance(score, weights, reached, rounds, strength)
    else:
        refined = banish(score, reached, rounds)
    if not per_head:
        refined = refined[..., None, :].expand(scores.shape)
    refined = refined.to(scores.dtype).contiguous()
    if signal != "evict":
        errors.in_range("scores", refined)
    return refined


def _acting(
    chosen: Tensor, keep: int, fraction: float, protected: Tensor, exclude_window: bool
) -> Tensor:
    """Return which of the ranked tokens of each graph are sources: its content, its own share."""
    taken = protected.sum(-1, keepdim=True)
    sources = protected.shape[-1] - taken
    if exclude_window:
        sizes, which = taken.unique(return_inverse=True)
        shares = [source_count(keep, fraction, size) for size in sizes.tolist()]
        sources = torch.minimum(sources, torch.tensor(shares, device=sources.device)[which])
    return torch.arange(chosen.shape[-1], device=chosen.device) < sources
