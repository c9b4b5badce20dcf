"""Selection by threshold: find the lowest kept score, then keep the first of its ties."""

from math import isfinite, prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from optimized._dispatch import kernel_on_gpu
from optimized.vector._by_numpy import array, on_cpu, places
from reference.contract.enforce import INTEGERS, any_true, may_branch_on_values
from reference.precision import widen
from reference.retain import kept_count, pooled, require_budget_covers_protected, unpooled

KEYS = 1 << 19
"""Keys at a time, so that a copy fits into a CPU's cache."""


@kernel_on_gpu
def retain(
    scores: Tensor,
    protected: Tensor | None,
    *,
    keep: int | Tensor | None,
    ratio: float | None,
    scope: str,
) -> Tensor:
    if protected is None and scope == "head" and not isinstance(keep, Tensor):
        count = keep if ratio is None else kept_count(scores.shape[-1], ratio)
        return largest(scores, count or 0)
    pools = pooled(sortable(scores), scope)
    *rows, pool = pools.shape
    budget: Any = keep if ratio is None else kept_count(pool, ratio)
    shields = None if protected is None else pooled(protected, scope)
    if shields is not None:
        # no score has the largest key, since plus infinity and NaN are refused
        pools = with_first(pools, shields)
    competing = pools.reshape(prod(rows), pool)
    budget_of_pool = budget.flatten() if isinstance(budget, Tensor) else budget
    kept = best(competing, budget_of_pool).view(pools.shape)
    # a protected entry is dropped only if a budget is too small; this test is cheaper than a count
    if shields is not None and any_true(shields & ~kept):
        budgets = torch.as_tensor(budget, device=scores.device).expand(rows)
        require_budget_covers_protected(ratio, budgets, shields.sum(-1))
    return unpooled(kept, scores.shape, scope)


def ranking(scores: Tensor) -> Tensor:
    return ranked(scores, scores.shape[-1])


def ranked(scores: Tensor, count: int) -> Tensor:
    """Return the positions of the `count` largest scores of each row, best first."""
    tokens, size = scores.shape[-1], scores.itemsize
    if not on_cpu(scores) or not scores.numel() or not count or size not in (2, 4):
        return scores.argsort(dim=-1, descending=True, stable=True)[..., :count]
    narrow = size == 2 and tokens <= 1 << 16
    wide, shift = (torch.int32, 16) if narrow else (torch.int64, 32)
    # one number that orders by score, then by position, and has the position as its last digits
    positions = torch.arange(tokens, dtype=wide)
    digits = array(torch.sub(positions, sortable(scores), alpha=1 << shift))
    if count < tokens:
        digits = np.partition(digits, count - 1)[..., :count]
    first = np.sort(digits) & ((1 << shift) - 1)
    return torch.from_numpy(first.astype(np.int64, copy=False))


def with_first(keys: Tensor, shields: Tensor) -> Tensor:
    """Return a copy of keys with the largest integer at shielded entries."""
    most = torch.iinfo(keys.dtype).max
    if not on_cpu(keys):
        return keys.masked_fill(shields, most)
    raised = array(keys).copy()
    np.putmask(raised, array(shields), most)
    return torch.from_numpy(raised)


def modular_utility(scores: Tensor, kept: Tensor) -> Tensor:
    wide = widen(scores)
    if may_branch_on_values(scores):
        utility = (wide * kept.view(torch.uint8)).sum(-1)
        if isfinite(utility.sum().item()):
            return utility
    return wide.masked_fill(~kept, 0).sum(-1)  # 0 times infinity is no number


def sortable(scores: Tensor) -> Tensor:
    """Return integers, as wide as the scores, that compare as the scores do; possibly a view."""
    integer = INTEGERS[scores.element_size()]
    bits = scores.view(integer)
    if bits.numel() and bits.amin().item() < 0:
        bits = (scores + 0.0).view(integer)  # -0.0 becomes 0.0
        # bits of negative floats grow with their magnitude, so all but the sign bit is flipped
        bits ^= (bits >> (8 * bits.element_size() - 1)) & torch.iinfo(integer).max
    return bits


def largest(scores: Tensor, count: int) -> Tensor:
    """Return the mask of the `count` largest scores of each row; ties keep the lowest positions."""
    if not may_branch_on_values(scores):
        order = scores.argsort(dim=-1, descending=True, stable=True)[..., :count]
        return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, order, True)
    rows = scores.reshape(prod(scores.shape[:-1]), scores.shape[-1])
    if count and on_cpu(rows):
        # bits of positive numbers order as these do: others need more only at the threshold
        bits = untied(rows.contiguous().view(INTEGERS[rows.itemsize]))
        threshold = lowest_kept(bits, count)
        if threshold.min() >> 8 * (bits.itemsize - rows.itemsize) > 0:
            return _at_or_above(threshold, bits, count).view(scores.shape)
    return best(sortable(rows), count).view(scores.shape)


def best(keys: Tensor, budgets: int | Tensor) -> Tensor:
    """Return the mask of the `budgets` largest keys of each row; ties keep the lowest positions."""
    if keys.numel() == 0 or (not isinstance(budgets, Tensor) and budgets == 0):
        return torch.zeros_like(keys, dtype=torch.bool)
    keys = untied(keys.contiguous())
    if on_cpu(keys):
        return _at_or_above(lowest_kept(keys, budgets), keys, budgets)
    if not isinstance(budgets, Tensor):
        threshold = keys.topk(budgets, sorted=False).values.amin(-1)
        marked = keys >= threshold[:, None]
        if int(marked.sum()) == budgets * len(keys):
            return marked  # no row has more entries equal to its threshold than it keeps
        above = (keys > threshold[:, None]).sum(-1)
        return cut(keys, threshold, budgets - above)
    largest = keys.topk(max(1, int(budgets.amax()))).values
    last = largest.gather(-1, (budgets - 1).clamp(min=0)[:, None])[:, 0]
    threshold = last.masked_fill(budgets == 0, torch.iinfo(keys.dtype).max)
    return cut(keys, threshold, budgets - (largest > threshold[:, None]).sum(-1))


def untied(keys: Tensor) -> Tensor:
    """Return keys of which none are equal in a row if they are short: the earlier is the larger."""
    tokens = keys.shape[-1]
    if keys.itemsize != 2 or tokens > 1 << 16:
        return keys
    later = torch.arange(tokens - 1, -1, -1, device=keys.device, dtype=torch.int32)
    return torch.add(later, keys, alpha=1 << 16)


def lowest_kept(keys: Tensor, budgets: int | Tensor) -> np.ndarray:
    """Return the least of the `budgets` largest keys of each row, or the greatest integer."""
    rows, tokens = array(keys), keys.shape[1]
    each_budget = array(budgets) if isinstance(budgets, Tensor) else budgets
    same = each_budget
    if not isinstance(each_budget, int):
        same = int(each_budget[0]) if np.ptp(each_budget) == 0 else 0
    if same:
        step, index = max(1, KEYS // tokens), tokens - same
        if len(rows) <= step:
            return np.partition(rows, index)[:, index, None]
        blocks = (rows[start : start + step] for start in range(0, len(rows), step))
        return np.concatenate([np.partition(block, index)[:, index, None] for block in blocks])
    index = np.clip(tokens - each_budget, 0, tokens - 1)[:, None]
    threshold = np.take_along_axis(np.sort(rows), index, -1)
    threshold[each_budget == 0] = np.iinfo(rows.dtype).max
    return threshold


def _at_or_above(threshold: np.ndarray, keys: Tensor, budgets: int | Tensor) -> Tensor:
    """Return the mask of the keys at or above each row's threshold, as many as it keeps."""
    rows = array(keys)
    marked = torch.from_numpy(rows >= threshold)
    total = int(budgets.sum()) if isinstance(budgets, Tensor) else budgets * len(rows)
    if np.count_nonzero(marked) == total:
        return marked  # no row has more entries equal to its threshold than it keeps
    above = torch.from_numpy(np.count_nonzero(rows > threshold, -1))
    return cut(keys, torch.from_numpy(threshold[:, 0]), budgets - above)


def cut(keys: Tensor, threshold: Tensor, missing: Tensor) -> Tensor:
    """Return the mask of keys above each row's threshold, and of the first `missing` equal ones."""
    marked = keys > threshold[:, None]
    ties = places(keys == threshold[:, None])
    row = ties // keys.shape[1]
    first = torch.searchsorted(row, torch.arange(len(keys), device=row.device))
    rank = torch.arange(len(row), device=row.device) - first[row]
    marked.view(-1)[ties[rank < missing[row]]] = True
    return marked
