"""Record the kernel launches of a call without running them, for example on `meta` tensors."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any, NamedTuple
from unittest.mock import patch

from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from reference._validation.contract import trusted


class Launch(NamedTuple):
    """One kernel launch over a grid of programs."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: dict[str, Any]  # constants included
    options: dict[str, int]  # such as num_warps


@contextmanager
def recorded() -> Iterator[list[Launch]]:
    """Return a context that records kernel launches instead of running them."""
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
    """Return the launches of a call, made without checks of its arguments."""
    with trusted(), recorded() as launches:
        call()
    return launches
