"""Selection by threshold: find the lowest kept score, then keep the first of its ties."""

from math import prod
from typing import Any

import torch
from torch import Tensor

from reference._validation.contract import may_branch_on_values
from reference.precision import widen
from reference.retain import kept_count, pooled, require_budget_covers_protected, unpooled

INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}

# From this length on, counting a row beats sorting it on a CPU.
LARGE = 1 << 14


def retain(
    scores: Tensor,
    protected: Tensor | None,
    *,
    keep: int | Tensor | None,
    ratio: float | None,
    scope: str,
) -> Tensor:
    pools = pooled(sortable(scores), scope)
    *rows, pool = pools.shape
    budget: Any = keep if ratio is None else kept_count(pool, ratio)
    shields = None if protected is None else pooled(protected, scope)
    if shields is not None:
        # no score has the largest key, since plus infinity and NaN are refused
        pools = pools.masked_fill(shields, torch.iinfo(pools.dtype).max)
    competing = pools.reshape(prod(rows), pool)
    each = budget.flatten() if isinstance(budget, Tensor) else budget
    kept = best(competing, each, few=scope != "head").view(pools.shape)
    # a protected entry is dropped only if a budget is too small; this test is cheaper than a count
    if shields is not None and bool((shields > kept).any()):
        budgets = torch.as_tensor(budget, device=scores.device).expand(rows)
        require_budget_covers_protected(ratio, budgets, shields.sum(-1))
    return unpooled(kept, scores.shape, scope)


def modular_utility(scores: Tensor, kept: Tensor) -> Tensor:
    return widen(scores).masked_fill(~kept, 0).sum(-1)


def sortable(scores: Tensor) -> Tensor:
    """Return integers, as wide as the scores, that compare as the scores do; possibly a view."""
    integer = INTEGERS[scores.element_size()]
    bits = scores.view(integer)
    if bits.numel() and bool(bits.amin() < 0):
        bits = (scores + 0.0).view(integer)  # -0.0 becomes 0.0
        # bits of negative floats grow with their magnitude, so all but the sign bit is flipped
        bits ^= (bits >> (8 * bits.element_size() - 1)) & torch.iinfo(integer).max
    return bits


def largest(scores: Tensor, count: int) -> Tensor:
    """Return the mask of the `count` largest scores of each row; ties keep the lowest positions."""
    if not may_branch_on_values(scores):
        order = scores.argsort(dim=-1, descending=True, stable=True)[..., :count]
        return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, order, True)
    keys = sortable(scores)
    rows = keys.reshape(prod(keys.shape[:-1]), keys.shape[-1])
    return best(rows, count, few=False).view(scores.shape)


def best(keys: Tensor, budgets: int | Tensor, few: bool) -> Tensor:
    """Return the mask of the `budgets` largest keys of each row; ties keep the lowest positions.

    `few` means that rows are layers or models, not heads, so that a loop over rows is fast.
    """
    if keys.numel() == 0 or (not isinstance(budgets, Tensor) and budgets == 0):
        return torch.zeros_like(keys, dtype=torch.bool)
    keys = keys.contiguous()
    counted = few and keys.shape[1] >= LARGE and keys.element_size() < 8 and not keys.is_cuda
    if keys.element_size() == 2 and keys.shape[1] <= 1 << 16 and not counted:
        places = torch.arange(keys.shape[1] - 1, -1, -1, device=keys.device, dtype=torch.int32)
        keys = keys.int() << 16 | places  # a tie is lost to the lower position
    if not isinstance(budgets, Tensor) and not counted:
        threshold = keys.topk(budgets, sorted=False).values.amin(-1)
        marked = keys >= threshold[:, None]
        if int(marked.sum()) == budgets * len(keys):
            return marked  # no row has more entries equal to its threshold than it keeps
        above = (keys > threshold[:, None]).sum(-1)
        return cut(keys, threshold, budgets - above)
    each = torch.as_tensor(budgets, device=keys.device).expand(len(keys))
    threshold, missing = (_by_counting if counted else _by_sorting)(keys, each)
    return cut(keys, threshold, missing)


def cut(keys: Tensor, threshold: Tensor, missing: Tensor) -> Tensor:
    """Return the mask of keys above each row's threshold, and of the first `missing` equal ones."""
    marked = keys > threshold[:, None]
    ties = (keys == threshold[:, None]).flatten().nonzero()[:, 0]
    row = ties // keys.shape[1]
    first = torch.searchsorted(row, torch.arange(len(keys), device=row.device))
    rank = torch.arange(len(row), device=row.device) - first[row]
    marked.view(-1)[ties[rank < missing[row]]] = True
    return marked


def _by_sorting(keys: Tensor, budgets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smallest key each row keeps, and how many of its ties, by a partial sort."""
    largest = keys.topk(max(1, int(budgets.amax()))).values
    last = largest.gather(-1, (budgets - 1).clamp(min=0)[:, None])[:, 0]
    threshold = last.masked_fill(budgets == 0, torch.iinfo(keys.dtype).max)
    return threshold, budgets - (largest > threshold[:, None]).sum(-1, dtype=torch.int32)


def _by_counting(keys: Tensor, budgets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same as `_by_sorting`, by histograms of 16-bit digits, row by row."""
    reach = _digit if keys.element_size() == 2 else _two_digits
    found = [reach(row, budget) for row, budget in zip(keys, budgets.tolist(), strict=True)]
    threshold, missing = zip(*found, strict=True)
    return keys.new_tensor(threshold), budgets.new_tensor(missing)


def _digit(digits: Tensor, budget: int) -> tuple[int, int]:
    """Return the digit at which the budget is full, from the largest down, and its kept count."""
    lowest = min(0, int(digits.amin()))
    counts = torch.bincount(digits if lowest == 0 else digits.int() - lowest)
    at_least = counts.flip(0).cumsum(0)
    step = int(torch.searchsorted(at_least, budget))
    above = int(at_least[step - 1]) if step else 0
    return len(counts) - 1 - step + lowest, budget - above


def _two_digits(keys: Tensor, budget: int) -> tuple[int, int]:
    """Return the 32-bit key at which the budget is full, and its kept count."""
    high = keys.view(torch.int16)[1::2]  # little-endian; the upper half has the sign
    top, missing = _digit(high, budget)
    low, missing = _digit(keys[high == top] & 0xFFFF, missing)
    return top << 16 | low, missing
