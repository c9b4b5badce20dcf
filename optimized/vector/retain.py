"""Selection by threshold: find the worst score that is kept, then count out its ties."""

import torch
from torch import Tensor

from optimized.vector._select import best, sortable
from reference.precision import widen
from reference.retain import kept_count, ranking, room
from reference.rules import AXES

__all__ = ["kept_count", "modular_utility", "ranking", "retain"]


def retain(
    scores: Tensor,
    protected: Tensor | None,
    *,
    keep: int | Tensor | None,
    ratio: float | None,
    scope: str,
) -> Tensor:
    pools = _pooled(sortable(scores), scope)
    *rows, pool = pools.shape
    budget = keep if ratio is None else kept_count(pool, ratio)
    budgets = torch.as_tensor(budget, device=scores.device).expand(rows)
    shields = None if protected is None else _pooled(protected, scope)
    if shields is not None:
        # no score has the largest key, for plus infinity and NaN are refused
        pools = pools.masked_fill(shields, torch.iinfo(pools.dtype).max)
    competing = pools.reshape(budgets.numel(), pool)
    kept = best(competing, budgets.flatten(), few=scope != "head").view(pools.shape)
    # only too small a budget drops a protected entry, and this is cheaper than counting them
    if shields is not None and bool((shields & ~kept).any()):
        room(keep, ratio, budgets, shields.sum(-1))
    if scope == "model":
        layers, *batch, heads, tokens = scores.shape
        return kept.view(*batch, layers, heads, tokens).movedim(-3, 0)
    return kept.view(scores.shape)


def _pooled(x: Tensor, scope: str) -> Tensor:
    return (x.movedim(0, -3) if scope == "model" else x).flatten(-AXES[scope])


def modular_utility(scores: Tensor, kept: Tensor) -> Tensor:
    return widen(scores).masked_fill(~kept, 0).sum(-1)
