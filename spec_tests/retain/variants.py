"""Other correct ways to select."""

from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product
from math import ceil

import numpy as np
import torch

from spec_tests.numpy_adapter import among_tensors
from spec_tests.variants.registry import register_variant


@register_variant("kept_count")
def subtract_removed_count(pool, ratio):
    """Subtract the removed number, rounded up, as a fraction."""
    return pool - ceil(Fraction(str(ratio)) * pool)


@register_variant("kept_count")
def in_decimals(pool, ratio):
    """Multiply decimals with enough digits."""
    with localcontext(prec=60):
        return int((1 - Decimal(str(ratio))) * pool)


@register_variant("ranking")
def by_a_stable_sort(scores):
    """Sort negated scores in ascending order; 0 - score turns -0.0 into 0.0."""
    return (0 - scores).sort(dim=-1, stable=True).indices


@register_variant("ranking")
def by_python(scores):
    """Sort each row by (score, position)."""
    rows = scores.reshape(scores.shape[:-1].numel(), scores.shape[-1]).tolist()
    order = [sorted(range(len(row)), key=lambda i, row=row: (-row[i], i)) for row in rows]
    return torch.tensor(order, dtype=torch.int64).reshape(scores.shape)


@register_variant("ranking", "values")
@among_tensors
def by_lexsort(scores):
    """Use NumPy's sort by several keys, whose last key counts first."""
    places = np.broadcast_to(np.arange(scores.shape[-1]), scores.shape)
    return np.lexsort((places, -scores), axis=-1)


def laid_in_pools(x, scope):
    """Return one row for each pool, and the shape that undoes it."""
    axes = {"head": 1, "layer": 2, "model": 3}[scope]
    moved = x.movedim(0, -3) if scope == "model" else x
    return moved.flatten(-axes), moved.shape


def laid_back(kept, shape, scope):
    """Return the entries in their original layout."""
    kept = kept.reshape(shape)
    return kept.movedim(-3, 0) if scope == "model" else kept


def budget_of(pools, keep, ratio):
    """Return the budget of each pool, with an axis for its entries."""
    keep = subtract_removed_count(pools.shape[-1], ratio) if keep is None else keep
    return torch.as_tensor(keep).expand(pools.shape[:-1])[..., None]


@register_variant("retain")
def by_threshold(scores, protected=None, *, keep=None, ratio=None, scope="head"):
    """Keep the entries above the last kept score, and the first of its ties."""
    pools, shape = laid_in_pools(scores + 0.0, scope)
    if protected is not None:
        pools = pools.masked_fill(laid_in_pools(protected, scope)[0], torch.inf)
    budget = budget_of(pools, keep, ratio)
    if not pools.numel():
        return torch.zeros_like(scores, dtype=torch.bool)
    ranked = pools.sort(dim=-1, descending=True).values
    threshold = ranked.gather(-1, (budget - 1).clamp(min=0))
    above, ties = pools > threshold, pools == threshold
    missing = budget - above.sum(-1, keepdim=True)
    return laid_back(above | (ties & (ties.cumsum(-1) <= missing)), shape, scope)


@register_variant("retain")
def by_rank(scores, protected=None, *, keep=None, ratio=None, scope="head"):
    """Rank by score, then put protected entries first; keep ranks below the budget."""
    pools, shape = laid_in_pools(scores, scope)
    order = by_a_stable_sort(pools)
    if protected is not None:
        shields = laid_in_pools(protected, scope)[0].gather(-1, order)
        order = order.gather(-1, (~shields).int().argsort(dim=-1, stable=True))
    ranks = order.argsort(dim=-1)
    return laid_back(ranks < budget_of(pools, keep, ratio), shape, scope)


@register_variant("retain")
def sort_each_pool(scores, protected=None, *, keep=None, ratio=None, scope="head"):
    """Sort the entries of each pool in Python, by (protected, score, index)."""
    pools, shape = laid_in_pools(scores, scope)
    shields = torch.zeros_like(pools, dtype=torch.bool)
    if protected is not None:
        shields = laid_in_pools(protected, scope)[0]
    budgets, kept = budget_of(pools, keep, ratio)[..., 0], torch.zeros_like(shields)
    for pool in product(*map(range, budgets.shape)):
        values, safe = pools[pool].tolist(), shields[pool].tolist()
        order = sorted(range(len(values)), key=lambda i: (not safe[i], -values[i], i))
        kept[pool][order[: int(budgets[pool])]] = True
    return laid_back(kept, shape, scope)


@register_variant("retain", "values")
def by_top_k(scores, protected=None, *, keep=None, ratio=None, scope="head"):
    """Use PyTorch's top-k on keys without ties: rank among distinct scores, then index."""
    pools, shape = laid_in_pools(scores, scope)
    size, budget = pools.shape[-1], budget_of(pools, keep, ratio)
    _, distinct = torch.unique(pools + 0.0, return_inverse=True)
    keys = distinct * size + torch.arange(size).flip(0)
    if protected is not None:
        keys = keys + laid_in_pools(protected, scope)[0] * int(keys.max() + 1)
    kept = torch.zeros_like(pools, dtype=torch.bool)
    best = keys.topk(int(budget.max())).indices
    wanted = (torch.arange(best.shape[-1]) < budget).expand(best.shape)
    return laid_back(kept.scatter(-1, best, wanted), shape, scope)


@register_variant("modular_utility")
def chosen_alone(scores, kept):
    """Sum with 0 at entries that are not kept: minus infinity times 0 is NaN."""
    exact = torch.promote_types(scores.dtype, torch.float32)
    return torch.where(kept, scores.to(exact), 0).sum(-1)


@register_variant("modular_utility", "values")
@among_tensors
def masked_sum(scores, kept):
    """Use NumPy's sum where a mask is true."""
    return scores.sum(-1, where=kept, dtype=np.result_type(scores, np.float32))
