"""What a launcher would launch, recorded instead of run: on `meta` tensors it costs nothing."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import patch

from torch import Tensor
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from reference._validation.contract import trusted


class Launch(NamedTuple):
    """One kernel, over a grid of programs."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: dict[str, Any]  # constants included
    options: dict[str, int]  # such as num_warps
    asked: Mapping[str, int] = MappingProxyType({})  # bytes of what is gathered, by argument

    @property
    def programs(self) -> int:
        """How many programs run."""
        return prod(self.grid)

    @property
    def warps(self) -> int:
        """How many warps a program has."""
        return self.options.get("num_warps", 4)

    def lanes(self, instructions: float) -> float:
        """Return how often all lanes together run so many instructions a warp."""
        return instructions * 32 * self.warps * self.programs

    @property
    def moved(self) -> int:
        """Bytes of all tensors, each read or written once.

        Of one that is gathered, those that all programs ask for, if that is less: what several
        ask for counts for each of them.
        """
        tensors = {n: a for n, a in self.arguments.items() if isinstance(a, Tensor)}
        bytes_of = dict[int, int]()
        for name, tensor in tensors.items():
            asked = min(tensor.nbytes, self.asked.get(name, tensor.nbytes))
            bytes_of[id(tensor)] = max(asked, bytes_of.get(id(tensor), 0))
        return sum(bytes_of.values())


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


def launched(call: Callable[[], object]) -> list[Launch]:
    """Return what a trusted call launches."""
    with trusted(), recorded() as launches:
        call()
    return launches
