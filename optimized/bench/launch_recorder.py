"""Record the kernel launches of a call without running them, for example on `meta` tensors.

Operators of PyTorch that would launch a kernel on a GPU are counted beside them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from optimized._dispatch import tensors
from reference.contract.enforce import trusted


class Launch(NamedTuple):
    """One kernel launch over a grid of programs."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: dict[str, Any]  # constants included
    options: dict[str, int]  # such as num_warps


class Operators(TorchDispatchMode):
    """Count the operators that launch a kernel on a GPU: those that write to memory on `device`."""

    SILENT = frozenset({"detach", "lift_fresh", "_unsafe_view"})
    """Operators that write nothing, beside views and those that only allocate memory."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device, self.count = device, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        aliases = [output.alias_info for output in func._schema.returns]
        view = any(alias and not alias.is_write for alias in aliases)
        name = func.overloadpacket.__name__
        if not view and name not in self.SILENT and "empty" not in name:
            outputs = tuple(result) if isinstance(result, list) else (result,)
            self.count += any(tensor.device == self.device for tensor in tensors(outputs))
        return result


@contextmanager
def recorded(run: bool = False) -> Iterator[list[Launch]]:
    """Return a context that records kernel launches; they do nothing, unless they also `run`."""
    launches: list[Launch] = []
    runs = {kind: kind.run for kind in (JITFunction, InterpretedFunction)}

    def record(kernel: Any, *args: Any, grid: Any, warmup: bool = False, **rest: Any) -> Any:
        every = dict(rest, grid=grid, warmup=warmup)
        options = {name: rest.pop(name) for name in [*rest] if name not in kernel.arg_names}
        bound = signature(kernel.fn).bind(*args, **rest)
        bound.apply_defaults()
        launches.append(Launch(kernel, tuple(grid), dict(bound.arguments), options))
        return runs[type(kernel)](kernel, *args, **every) if run else None

    with patch.object(JITFunction, "run", record), patch.object(InterpretedFunction, "run", record):
        yield launches


def launched(call: Callable[[], object]) -> list[Launch]:
    """Return the launches of a call, made without checks of its arguments."""
    with trusted(), recorded() as launches:
        call()
    return launches
