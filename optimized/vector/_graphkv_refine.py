"""GraphKV end to end: all graphs of a call at once."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from optimized.vector.graphkv import (
    banish,
    cosine,
    decay,
    enhance,
    grouped,
    neighbour_count,
    ranked,
    source_count,
    strongest,
)
from reference.graphkv.refine import concatenate_heads
from reference.precision import widen

__all__ = ["concatenate_heads", "graphkv_refine"]


def graphkv_refine(
    scores: Float[Tensor, "*batch heads tokens"],
    keys: Float[Tensor, "*batch heads tokens width"],
    keep: int,
    count: int,
    protected: Bool[Tensor, "*batch heads tokens"] | None = None,
    *,
    queries: Float[Tensor, "*batch query_heads tokens width"] | None = None,
    values: Float[Tensor, "*batch heads tokens width"] | None = None,
    kind: str = "kk",
    fraction: float = 0.3,
    rounds: int = 1,
    strength: float = 1.0,
    rule: str = "product",
    signal: str = "decay",
    per_head: bool = False,
    spare_sources: bool = False,
    clamp: bool = False,
    exclude_window: bool = False,
    adaptive: bool = False,
) -> Float[Tensor, "*batch heads tokens"]:
    if not scores.numel():
        return scores.clone()
    ends = {"k": keys, "q": queries, "v": values}
    start, end = grouped(ends[kind[0]], keys.shape), grouped(ends[kind[1]], keys.shape)
    if adaptive:
        count = neighbour_count(count, scores.shape[-1])
    score = widen(scores)
    if not per_head:
        score, start, end = score.mean(-2), concatenate_heads(start), concatenate_heads(end)
        protected = protected.any(-2) if protected is not None else None
    chosen = ranked(score, min(source_count(keep, fraction), score.shape[-1]), protected)
    acting = None
    if protected is not None:
        acting = _acting(chosen, keep, fraction, protected, exclude_window)
        # a rank that is no source in this graph doubles the first one, and reaches nothing
        chosen = torch.where(acting, chosen, chosen[..., :1])
    weights = cosine(start, end, chosen, clamp)
    reached = strongest(weights, chosen, count, protected, spare_sources)
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
    return refined.to(scores.dtype).contiguous()


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
