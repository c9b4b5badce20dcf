"""What a function refuses, said in one voice: the argument, its value, the admissible range.

Shapes, types and scalars are always checked. Checks that must look at a tensor's values are left
out while `torch.compile` traces, because a graph cannot branch on data.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import is_dataclass
from types import FunctionType, ModuleType

import torch
from torch import Tensor


def whole(name: str, value: int, low: int = 0, high: int | None = None) -> None:
    """Refuse what is not an integer in [low, high]."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < low or (high is not None and value > high):
        span = f">= {low}" if high is None else f"in [{low}, {high}]"
        raise ValueError(f"{name} must be {span}, got {value}")


def fraction(name: str, value: float) -> None:
    """Refuse what is outside [0, 1]."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be in [0, 1], got {value}")


def open_fraction(name: str, value: float) -> None:
    """Refuse what is outside (0, 1)."""
    if not 0 < value < 1:
        raise ValueError(f"{name} must be in (0, 1), got {value}")


def above_zero_to_one(name: str, value: float) -> None:
    """Refuse what is outside (0, 1]."""
    if not 0 < value <= 1:
        raise ValueError(f"{name} must be in (0, 1], got {value}")


def positive(name: str, value: float) -> None:
    """Refuse what is not above 0."""
    if not value > 0:
        raise ValueError(f"{name} must be > 0, got {value}")


def non_negative(name: str, value: float) -> None:
    """Refuse what is below 0."""
    if not value >= 0:
        raise ValueError(f"{name} must be >= 0, got {value}")


def one_of(name: str, value: object, choices: Collection[object]) -> None:
    """Refuse what is not among `choices`."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {listed}, got {value!r}")


def floating(name: str, tensor: Tensor, axes: int = 1) -> None:
    """Refuse what is not a floating-point tensor of at least `axes` axes."""
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor, got {_kind(tensor)}")
    _axes(name, tensor, axes)


def integral(name: str, tensor: Tensor, axes: int = 1) -> None:
    """Refuse what is not an int64 tensor of at least `axes` axes."""
    if not isinstance(tensor, Tensor) or tensor.dtype != torch.int64:
        raise TypeError(f"{name} must be an int64 tensor, got {_kind(tensor)}")
    _axes(name, tensor, axes)


def boolean(name: str, tensor: Tensor, shape: Sequence[int] | None = None) -> None:
    """Refuse what is not a boolean tensor, of exactly `shape` where one is given."""
    if not isinstance(tensor, Tensor) or tensor.dtype != torch.bool:
        raise TypeError(f"{name} must be a boolean tensor, got {_kind(tensor)}")
    if shape is not None:
        shaped(name, tensor, shape)


def shaped(name: str, tensor: Tensor, shape: Sequence[int]) -> None:
    """Refuse a tensor that is not exactly of `shape`."""
    if tuple(tensor.shape) != tuple(shape):
        raise ValueError(f"{name} must have shape {tuple(shape)}, got {tuple(tensor.shape)}")


def no_nan(name: str, scores: Tensor) -> None:
    """Refuse NaN and plus infinity: minus infinity marks an evicted token and may stay."""
    if torch.compiler.is_compiling():
        return
    # one reduction and no mask: NaN survives a maximum
    if scores.numel() and not bool(scores.amax() < torch.inf):
        raise ValueError(
            f"{name} must be < inf and not NaN, got {_first(scores, ~(scores < torch.inf))}"
        )


def finite(name: str, tensor: Tensor) -> None:
    """Refuse NaN and both infinities."""
    if torch.compiler.is_compiling():
        return
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{name} must be finite, got {_first(tensor, ~torch.isfinite(tensor))}")


def importance(name: str, scores: Tensor) -> None:
    """Refuse scores that are not floating point, not finite, or negative."""
    floating(name, scores)
    if torch.compiler.is_compiling():
        return
    fine = (scores >= 0) & (scores < torch.inf)
    if not bool(fine.all()):
        raise ValueError(f"{name} must be finite and >= 0, got {_first(scores, ~fine)}")


def positive_finite(name: str, value: float) -> None:
    """Refuse what is not above 0, and infinity."""
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be finite and > 0, got {value}")


def attendable(queries: Tensor, keys: Tensor, causal: bool) -> None:
    """Refuse queries that cannot attend to `keys`: heads are the third axis from the end."""
    for name, tensor in (("queries", queries), ("keys", keys)):
        floating(name, tensor, 3)
        finite(name, tensor)
    heads, count, width = queries.shape[-3:]
    kv_heads, tokens = keys.shape[-3:-1]
    if width == 0:
        raise ValueError(f"queries must have a width of at least 1, got {width}")
    shaped("keys", keys, (*queries.shape[:-3], kv_heads, tokens, width))
    if heads % kv_heads if kv_heads else heads:
        raise ValueError(
            f"the heads of queries must be a multiple of the {kv_heads} of keys, got {heads}"
        )
    if causal and count > tokens:
        raise ValueError(
            f"causal queries must be at most as many as the {tokens} tokens, got {count}"
        )


def budget(keep: int | Tensor | None, ratio: float | None, pool: int, pools: Sequence[int]) -> None:
    """Refuse all but one of `keep` (a number, or one for each of `pools`) and `ratio`."""
    if ratio is not None:
        fraction("ratio", ratio)
    if (keep is None) == (ratio is None):
        raise ValueError(
            f"exactly one of keep and ratio must be given, got keep={keep}, ratio={ratio}"
        )
    if isinstance(keep, Tensor):
        integral("keep", keep, 0)
        shaped("keep", keep, pools)
        bad = (keep < 0) | (keep > pool)
        if not torch.compiler.is_compiling() and bool(bad.any()):
            raise ValueError(f"keep must be in [0, {pool}], got {_first(keep, bad)}")
    elif keep is not None:
        whole("keep", keep, 0, pool)


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
    holds = isinstance(value, (Tensor, dict, list, tuple)) or is_dataclass(value)
    code = isinstance(value, (type, ModuleType, FunctionType))
    if code or not (holds or hasattr(value, "__dict__")):
        raise TypeError(f"{name} must be a tensor or hold tensors, got {value!r}")


def strided(name: str, tensor: Tensor) -> None:
    """Refuse a tensor without one storage of its elements, such as a sparse one."""
    if tensor.layout != torch.strided:
        raise TypeError(f"{name} must hold strided tensors, got layout {tensor.layout}")


def _axes(name: str, tensor: Tensor, axes: int) -> None:
    if tensor.ndim < axes:
        raise ValueError(f"{name} must have at least {axes} axes, got shape {tuple(tensor.shape)}")


def _kind(value: object) -> str:
    return f"a {value.dtype} tensor" if isinstance(value, Tensor) else f"{type(value).__name__}"


def _first(tensor: Tensor, bad: Tensor) -> float:
    return tensor[bad][0].item()
