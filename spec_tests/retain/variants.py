"""Other correct ways to select."""

from fractions import Fraction
from itertools import product
from math import ceil

import torch


def subtract_removed_count(pool, ratio):
    """Subtract the removed number, rounded up, as a fraction."""
    return pool - ceil(Fraction(str(ratio)) * pool)


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
