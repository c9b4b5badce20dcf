"""A row of the benchmarks: a slow and a fast function on the same inputs."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import optimized
import reference

Inputs = dict[str, Any]


class Case(NamedTuple):
    """A fast function, the slow one it is compared with, and their inputs."""

    name: str
    shape: str
    inputs: Callable[[], Inputs]
    fast: Callable[..., object]
    slow: Callable[..., object]
    against: str = "reference"
    paper: str = ""  # milliseconds that a paper reports for the fast side, on its own hardware


def compare(name: str, shape: str, inputs: Callable[[], Inputs]) -> Case:
    """Return the row that compares a public function with that of the reference."""
    return Case(name, shape, inputs, getattr(optimized, name), getattr(reference, name))


def normal(seed: int, *shape: int) -> Tensor:
    """Return a tensor of standard normal numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def parametrize_sides(rows: list[Case]) -> pytest.MarkDecorator:
    """Return the mark that runs a test for both sides of each row, one right after the other."""
    labels = [(row.name, row.shape) for row in rows]
    assert len(set(labels)) == len(rows), "two rows have the same name and shape"
    cases = [
        pytest.param(row, side, id=f"{row.name}-{row.shape}-{side}")
        for row in rows
        for side in ("slow", "fast")
    ]
    return pytest.mark.parametrize(("row", "side"), cases)


def timing_test(rows: list[Case]) -> Callable[..., None]:
    """Return the test that times one side of a row."""

    @parametrize_sides(rows)
    def test_timing(benchmark: Any, device: torch.device, row: Case, side: str) -> None:
        measure(benchmark, device, row, side)

    return test_timing


def measure(benchmark: Any, device: torch.device, row: Case, side: str) -> None:
    """Time one side: the first call, then 3 to 30 rounds, as many as fit into 2 seconds."""
    inputs = moved(row.inputs(), device)
    work = row.fast if side == "fast" else row.slow

    def call() -> None:
        work(**inputs)
        if device.type == "cuda":
            torch.cuda.synchronize()

    start = time.perf_counter()
    call()
    first = time.perf_counter() - start
    start = time.perf_counter()
    call()
    rounds = min(30, max(3, int(2 / (time.perf_counter() - start))))
    benchmark.extra_info.update(
        name=row.name, shape=row.shape, against=row.against, paper=row.paper, side=side, first=first
    )
    benchmark.pedantic(call, rounds=rounds)


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
