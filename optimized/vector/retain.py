"""Selection by threshold: find the worst score that is kept, then count out its ties."""

from fractions import Fraction

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from optimized.vector._select import best, sortable
from reference import errors, selection_errors
from reference.precision import widen

AXES = {"head": 1, "layer": 2, "model": 3}


def kept_count(pool: int, ratio: float) -> int:
    errors.whole("pool", pool)
    errors.fraction("ratio", ratio)
    removed = Fraction(str(ratio))
    return (removed.denominator - removed.numerator) * pool // removed.denominator


def ranking(scores: Float[Tensor, "*heads tokens"]) -> Int[Tensor, "*heads tokens"]:
    errors.floating("scores", scores)
    selection_errors.no_nan("scores", scores)
    return scores.argsort(dim=-1, descending=True, stable=True)


def retain(
    scores: Float[Tensor, "*heads tokens"],
    protected: Bool[Tensor, "*heads tokens"] | None = None,
    *,
    keep: int | Int[Tensor, "*pools"] | None = None,
    ratio: float | None = None,
    scope: str = "head",
) -> Bool[Tensor, "*heads tokens"]:
    errors.one_of("scope", scope, AXES)
    errors.floating("scores", scores, AXES[scope])
    selection_errors.no_nan("scores", scores)
    if protected is not None:
        errors.boolean("protected", protected, scores.shape)
    pools = _pooled(sortable(scores), scope)
    *rows, pool = pools.shape
    selection_errors.budget(keep, ratio, pool, rows)
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
        selection_errors.room(keep, ratio, budgets, shields.sum(-1))
    if scope == "model":
        layers, *batch, heads, tokens = scores.shape
        return kept.view(*batch, layers, heads, tokens).movedim(-3, 0)
    return kept.view(scores.shape)


def _pooled(x: Tensor, scope: str) -> Tensor:
    return (x.movedim(0, -3) if scope == "model" else x).flatten(-AXES[scope])


def modular_utility(
    scores: Float[Tensor, "*heads tokens"], kept: Bool[Tensor, "*heads tokens"]
) -> Float[Tensor, "*heads"]:
    errors.floating("scores", scores)
    selection_errors.no_nan("scores", scores)
    errors.boolean("kept", kept, scores.shape)
    return widen(scores).masked_fill(~kept, 0).sum(-1)
