"""The values of a GPU that a call waits for."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

PYTORCH = str(Path(torch.__file__).parent)
WAITING = {"_local_scalar_dense", "equal", "masked_select", "nonzero", "unique_dim", "_unique2"}
WAITING_METHODS = {"cpu", "numpy", "tolist"}  # operations on a GPU, but not on a CPU
INDEXING = {"index", "index_put", "index_put_"}  # which counts the places of a mask


class Reads(TorchDispatchMode):
    """Notes the operations for which the host waits for a GPU, with the lines that run them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        """Note an operation if it reads values, and run it."""
        self.note(function.overloadpacket.__name__, args)
        return function(*args, **(kwargs or {}))

    def note(self, name: str, args: Any) -> None:
        """Note an operation that reads values, and the innermost line outside of PyTorch."""
        indices = args[1] if name in INDEXING else ()
        masked = any(isinstance(x, Tensor) and x.dtype == torch.bool for x in indices)
        if masked or name in WAITING | WAITING_METHODS:
            frame: Any = sys._getframe(1)
            while frame.f_code.co_filename.startswith((PYTORCH, __file__)):
                frame = frame.f_back
            self.found.append((name, f"{frame.f_code.co_filename}:{frame.f_lineno}"))


class Methods(TorchFunctionMode):
    """Notes the calls of methods that read values and are no operations on a CPU."""

    def __init__(self, reads: Reads) -> None:
        super().__init__()
        self.reads = reads

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        """Note a call and run it."""
        if getattr(function, "__name__", "") in WAITING_METHODS:
            self.reads.note(function.__name__, args)
        return function(*args, **(kwargs or {}))


@contextmanager
def reads_as_if_on_gpu() -> Iterator[Reads]:
    """Note reads of values, and let tensors of the CPU say that they are on a GPU."""
    on_gpu = patch.object(Tensor, "is_cuda", property(lambda _: True), create=True)
    eager = patch("torch.cuda.is_current_stream_capturing", lambda: False)
    reads = Reads()
    with on_gpu, eager, Methods(reads), reads:
        yield reads
