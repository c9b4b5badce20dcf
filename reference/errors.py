"""What a function refuses, said in one voice: the argument, its value, the admissible range.

Shapes, types and scalars are always checked. Checks that must look at a tensor's values are left
out while `torch.compile` traces, because a graph cannot branch on data.
"""

import math
from collections.abc import Collection, Sequence
from numbers import Real

import torch
from torch import Tensor

from reference.contract import scanning


def whole(name: str, value: int, low: int = 0, high: int | None = None) -> None:
    """Refuse what is not an integer in [low, high]."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < low or (high is not None and value > high):
        span = f">= {low}" if high is None else f"in [{low}, {high}]"
        raise ValueError(f"{name} must be {span}, got {value}")


def number(name: str, value: float) -> None:
    """Refuse what is not a real number: flags, text, tensors."""
    if isinstance(value, bool) or not isinstance(value, int | float | Real):
        got = _kind(value) if isinstance(value, Tensor) else repr(value)
        raise TypeError(f"{name} must be a number, got {got}")


def fraction(name: str, value: float) -> None:
    """Refuse what is outside [0, 1]."""
    number(name, value)
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be in [0, 1], got {value}")


def open_fraction(name: str, value: float) -> None:
    """Refuse what is outside (0, 1)."""
    number(name, value)
    if not 0 < value < 1:
        raise ValueError(f"{name} must be in (0, 1), got {value}")


def above_zero_to_one(name: str, value: float) -> None:
    """Refuse what is outside (0, 1]."""
    number(name, value)
    if not 0 < value <= 1:
        raise ValueError(f"{name} must be in (0, 1], got {value}")


def positive(name: str, value: float) -> None:
    """Refuse what is not above 0."""
    number(name, value)
    if not value > 0:
        raise ValueError(f"{name} must be > 0, got {value}")


def non_negative(name: str, value: float) -> None:
    """Refuse what is below 0."""
    number(name, value)
    if not value >= 0:
        raise ValueError(f"{name} must be >= 0, got {value}")


def one_of(name: str, value: object, choices: Collection[object]) -> None:
    """Refuse what is not among `choices`."""
    # compared only with its like: a list has no hash, and an array no truth
    if not any(type(value) is type(choice) and value == choice for choice in choices):
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


def not_empty(name: str, tensor: Tensor) -> None:
    """Refuse a tensor without elements: a mean over nothing has no value."""
    if not tensor.numel():
        raise ValueError(f"{name} must not be empty, got shape {tuple(tensor.shape)}")


def marking(name: str, mask: Tensor) -> None:
    """Refuse a mask that is true nowhere."""
    if scanning(mask) and not bool(mask.any()):
        raise ValueError(f"{name} must be true somewhere, got {mask.tolist()}")


def finite(name: str, tensor: Tensor) -> None:
    """Refuse NaN and both infinities."""
    if torch.compiler.is_compiling():
        return
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{name} must be finite, got {_first(tensor, ~torch.isfinite(tensor))}")


def in_range(name: str, result: Tensor, got: object = "a result out of range") -> None:
    """Refuse what leads to a `result`, at least 0, that its dtype cannot hold."""
    if scanning(result) and not bool(torch.isfinite(result.amax())):
        raise ValueError(
            f"{name} must be in the range where results are finite in {result.dtype}, got {got}"
        )


def importance(name: str, scores: Tensor, axes: int = 1) -> None:
    """Refuse scores that are not floating point, not finite, or negative."""
    floating(name, scores, axes)
    if torch.compiler.is_compiling():
        return
    fine = (scores >= 0) & (scores < torch.inf)
    if not bool(fine.all()):
        raise ValueError(f"{name} must be finite and >= 0, got {_first(scores, ~fine)}")


def positive_finite(name: str, value: float) -> None:
    """Refuse what is not above 0, and infinity."""
    number(name, value)
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be finite and > 0, got {value}")


def given(name: str, value: object, where: str) -> None:
    """Refuse an optional argument left out `where` it is needed."""
    if value is None:
        raise ValueError(f"{name} must be given {where}, got None")


def positions(name: str, tensor: Tensor, tokens: int) -> None:
    """Refuse what is not an int64 tensor of positions in [0, tokens - 1]."""
    integral(name, tensor)
    if torch.compiler.is_compiling():
        return
    fine = (tensor >= 0) & (tensor < tokens)
    if not bool(fine.all()):
        raise ValueError(f"{name} must be in [0, {tokens - 1}], got {_first(tensor, ~fine)}")


def _axes(name: str, tensor: Tensor, axes: int) -> None:
    if tensor.ndim < axes:
        raise ValueError(f"{name} must have at least {axes} axes, got shape {tuple(tensor.shape)}")


def _kind(value: object) -> str:
    return f"a {value.dtype} tensor" if isinstance(value, Tensor) else f"{type(value).__name__}"


def _first(tensor: Tensor, bad: Tensor) -> float:
    return tensor[bad][0].item()
