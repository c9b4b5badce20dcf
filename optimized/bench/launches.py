"""What a launcher would launch, recorded instead of run: on `meta` tensors it costs nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any, NamedTuple
from unittest.mock import patch

from torch import Tensor
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction


class Launch(NamedTuple):
    """One kernel, over a grid of programs."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: dict[str, Any]  # constants included
    options: dict[str, int]  # such as num_warps

    @property
    def programs(self) -> int:
        """How many programs run."""
        count = 1
        for length in self.grid:
            count *= length
        return count

    @property
    def moved(self) -> int:
        """Bytes of all tensors, each read or written once."""
        tensors = {id(a): a for a in self.arguments.values() if isinstance(a, Tensor)}
        return sum(tensor.nbytes for tensor in tensors.values())


@contextmanager
def recorded() -> Iterator[list[Launch]]:
    """Collect the launches of a block, none of which takes place."""
    found: list[Launch] = []

    def record(kernel: Any, *args: Any, grid: Any, warmup: bool = False, **rest: Any) -> None:
        del warmup
        options = {name: rest.pop(name) for name in [*rest] if name not in kernel.arg_names}
        bound = signature(kernel.fn).bind(*args, **rest)
        bound.apply_defaults()
        found.append(Launch(kernel, tuple(grid), dict(bound.arguments), options))

    with patch.object(JITFunction, "run", record), patch.object(InterpretedFunction, "run", record):
        yield found
