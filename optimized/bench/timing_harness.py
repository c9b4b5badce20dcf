"""A case of the CPU benchmarks: a slow and a fast function on the same inputs."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

import optimized
import reference

Inputs = dict[str, Any]
HIDDEN = 1024
"""The width of the hidden states."""


class Case(NamedTuple):
    """A fast function, the slow one it is compared with, and their inputs."""

    name: str
    shape: str
    inputs: Callable[[], Inputs]
    fast: Callable[..., object]
    slow: Callable[..., object]
    against: str = "reference"
    paper: str = ""  # milliseconds that a paper reports for the fast side, on its own hardware


class Timing(NamedTuple):
    """The median seconds of both sides, and those of the fast side's first call."""

    slow: float
    fast: float
    first: float


def reference_case(name: str, shape: str, inputs: Callable[[], Inputs]) -> Case:
    """Return the case that compares a public function with that of the reference."""
    return Case(name, shape, inputs, getattr(optimized, name), getattr(reference, name))


def normal(seed: int, *shape: int) -> Tensor:
    """Return a tensor of standard normal numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def gate(kv_heads: int) -> optimized.GateWeights:
    """Return random weights of a FastKVzip gate with 4 queries per key head."""
    group, dim, hidden = 4, 16, HIDDEN
    return optimized.GateWeights(
        normal(0, kv_heads, group, dim, hidden) / 32,
        normal(1, kv_heads, group, dim),
        torch.ones(dim),
        normal(2, kv_heads, dim, hidden) / 32,
        torch.ones(dim),
        normal(3, kv_heads, 16, dim),
        normal(4, kv_heads, group),
    )


def moved(value: Any, device: torch.device) -> Any:
    """Return an argument on a device, with all tensors inside it."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {name: moved(part, device) for name, part in value.items()}
    if not isinstance(value, tuple):
        return value
    parts = [moved(part, device) for part in value]
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
