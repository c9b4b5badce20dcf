"""What selection refuses, in the voice of `reference.errors`."""

from collections.abc import Sequence

import torch
from torch import Tensor

from reference import errors


def budget(keep: int | Tensor | None, ratio: float | None, pool: int, pools: Sequence[int]) -> None:
    """Refuse all but one of `keep` (a number, or one for each of `pools`) and `ratio`."""
    if ratio is not None:
        errors.fraction("ratio", ratio)
    if (keep is None) == (ratio is None):
        raise ValueError(
            f"exactly one of keep and ratio must be given, got keep={keep}, ratio={ratio}"
        )
    if isinstance(keep, Tensor):
        errors.integral("keep", keep, 0)
        errors.shaped("keep", keep, pools)
        bad = (keep < 0) | (keep > pool)
        if not torch.compiler.is_compiling() and bool(bad.any()):
            raise ValueError(f"keep must be in [0, {pool}], got {keep[bad][0].item()}")
    elif keep is not None:
        errors.whole("keep", keep, 0, pool)


def room(
    keep: int | Tensor | None, ratio: float | None, budgets: Tensor, protected: Tensor
) -> None:
    """Refuse a budget, as `keep` or `ratio` gave it, below its pool's protected entries."""
    if torch.compiler.is_compiling():
        return
    short = budgets < protected
    if bool(short.any()):
        given = (
            f"keep must be >= {{}}, got {keep}"
            if ratio is None
            else f"ratio must leave {{}}, got {ratio}"
        )
        raise ValueError(
            given.format(f"the {int(protected[short][0])} protected entries of a pool")
        )
