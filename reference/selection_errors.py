"""What selection and eviction refuse, in the voice of `reference.errors`."""

from collections import deque
from collections.abc import Sequence
from types import FunctionType, ModuleType

import torch
from torch import Tensor

from reference import errors


def no_nan(name: str, scores: Tensor) -> None:
    """Refuse NaN and plus infinity: minus infinity marks an evicted token and may stay."""
    if torch.compiler.is_compiling():
        return
    # one reduction and no mask: NaN survives a maximum
    if scores.numel() and not bool(scores.amax() < torch.inf):
        raise ValueError(
            f"{name} must be < inf and not NaN, got {scores[~(scores < torch.inf)][0].item()}"
        )


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


def holder(name: str, value: object) -> None:
    """Refuse what can hold no tensor: a number, a string, code."""
    holds = isinstance(value, (Tensor, dict, list, tuple, set, frozenset, deque))
    slotted = any("__slots__" in vars(kind) for kind in type(value).__mro__)
    code = isinstance(value, (type, ModuleType, FunctionType))
    if code or not (holds or slotted or hasattr(value, "__dict__")):
        raise TypeError(f"{name} must be a tensor or hold tensors, got {value!r}")


def strided(name: str, tensor: Tensor) -> None:
    """Refuse a tensor without one storage of its elements, such as a sparse one."""
    if tensor.layout != torch.strided:
        raise TypeError(f"{name} must hold strided tensors, got layout {tensor.layout}")
