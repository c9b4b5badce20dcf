"""Checks that annotations cannot express; each error names argument, value and admissible range."""

from collections.abc import Collection, Sequence
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from reference.contract.enforce import any_true, choice, compiled, ends, may_read_values, shown
from reference.contract.types import Finite


def must_be(name: str, value: object, annotation: Any) -> None:
    """Apply the check of an annotation where no signature applies: in a method, or to one part."""
    compiled(name, annotation)(value, {})


def one_of(name: str, value: object, choices: Collection[object]) -> None:
    """Refuse a value that is not among `choices`."""
    choice(name, tuple(choices), value, {})


def typed(name: str, tensor: Tensor, dtype: torch.dtype) -> None:
    """Refuse a tensor of another dtype."""
    if tensor.dtype != dtype:
        raise TypeError(f"{name} must be a {dtype} tensor, got {shown(tensor)}")


def shaped(name: str, tensor: Tensor, shape: Sequence[int]) -> None:
    """Refuse a tensor that is not exactly of `shape`."""
    if tuple(tensor.shape) != tuple(shape):
        raise ValueError(f"{name} must have shape {tuple(shape)}, got {tuple(tensor.shape)}")


def not_empty(name: str, tensor: Tensor) -> None:
    """Refuse a tensor without elements: a mean over nothing has no value."""
    if not tensor.numel():
        raise ValueError(f"{name} must not be empty, got shape {tuple(tensor.shape)}")


def finite_unless_its(result: Tensor, name: str, tensor: Tensor) -> None:
    """Refuse a tensor that is not finite, which is looked at only if `result` is not finite.

    For a smaller result, which is NaN or infinite wherever the tensor is.
    """
    if may_read_values(result) and not isfinite(result.sum().item()):
        must_be(name, tensor, Finite[Tensor, "*axes"])


def check_any_true(name: str, mask: Tensor) -> None:
    """Refuse a mask that is true nowhere."""
    if may_read_values(mask) and not any_true(mask):
        raise ValueError(f"{name} must be true somewhere, got {mask.tolist()}")


def refuse_overflow(name: str, result: Tensor, got: object = "a result out of range") -> None:
    """Refuse an argument whose `result` overflows its dtype."""
    if not may_read_values(result) or isfinite(result.sum().item()):
        return
    if not all(map(isfinite, ends(result))):
        raise ValueError(
            f"{name} must be in the range where results are finite in {result.dtype}, got {got}"
        )
