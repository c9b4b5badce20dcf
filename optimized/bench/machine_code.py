"""Kernels compiled without a GPU, and the resources that their machine code needs.

The compiler, the assembler and the tool that reads resources come with Triton.
"""

import re
import subprocess
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction, mangle_type

from optimized.bench.launch_recorder import Launch

Target = int | str
CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
SHARED = {80: 166912, 90: 232448, 100: 232448, "gfx942": 65536}
"""Bytes of shared memory that a program may have."""


class Source(NamedTuple):
    """A kernel as a launch specialises it, in a form that can be sent to another process."""

    home: str
    kernel: str
    signature: tuple[tuple[str, Any], ...]
    constants: tuple[tuple[tuple[int, ...], Any], ...]  # keys: index, and indices inside tuples
    aligned: tuple[tuple[int, ...], ...]  # indices of arguments that are multiples of 16
    options: tuple[tuple[str, int], ...]


class KernelResources(NamedTuple):
    """The resources of a compiled kernel."""

    registers: int
    spilled: int  # bytes of a thread's stack on NVIDIA, number of registers on AMD
    shared: int  # bytes


def source(launch: Launch) -> Source:
    """Return the kernel of a launch, specialised as by Triton's launcher."""
    notes = launch.kernel.fn.__annotations__
    constants, aligned = [], []
    names = [*launch.arguments]
    general = {(names.index(name),) for name in unspecialized(launch.kernel)}

    def type_at(path: tuple[int, ...], value: Any, constant: bool = False) -> Any:
        if isinstance(value, tuple):
            return type(value)(*(type_at((*path, i), x) for i, x in enumerate(value)))
        # Triton specialises the elements of a tuple whatever it is told of the tuple
        if type(value) is int and path in general and not constant:
            return notes.get(names[path[0]], mangle_type(value))
        if constant or value is None or (type(value) is int and value == 1):
            constants.append((path, value))
            return "constexpr"
        start = value.storage_offset() * value.itemsize if isinstance(value, Tensor) else value
        if type(start) is int and start % 16 == 0:
            aligned.append(path)
        return mangle_type(value)

    signature = [
        (name, type_at((index,), value, "constexpr" in str(notes.get(name))))
        for index, (name, value) in enumerate(launch.arguments.items())
    ]
    return Source(
        launch.kernel.fn.__module__,
        launch.kernel.fn.__name__,
        tuple(signature),
        tuple(constants),
        tuple(aligned),
        tuple(sorted(launch.options.items())),
    )


def unspecialized(kernel: Any) -> frozenset[str]:
    """Return the names of a kernel's integers that it is not compiled anew for."""
    if isinstance(kernel, JITFunction):
        return frozenset(param.name for param in kernel.params if param.do_not_specialize)
    return frozenset(kernel.kwargs.get("do_not_specialize") or ())


def compiled(wanted: Source, target: Target) -> Any:
    """Compile a kernel for an NVIDIA architecture by number, or an AMD one by name.

    The limit of registers is an option for NVIDIA alone.
    """
    gpu = GPUTarget("cuda", target, 32) if isinstance(target, int) else GPUTarget("hip", target, 64)
    return triton.compile(
        ASTSource(
            fn=getattr(import_module(wanted.home), wanted.kernel),
            signature=dict(wanted.signature),
            constexprs=dict(wanted.constants),
            attrs={path: [["tt.divisibility", 16]] for path in wanted.aligned},
        ),
        target=gpu,
        options={
            name: value
            for name, value in wanted.options
            if isinstance(target, int) or name != "maxnreg"
        },
    )


def compile_kernel(wanted: Source, target: Target) -> KernelResources:
    """Compile a kernel, and return the resources that its machine code needs.

    Raises:
        ValueError: the report of the machine code has no such number.
    """
    code = compiled(wanted, target)
    if isinstance(target, str):
        text, registers, spilled = code.asm["amdgcn"], r"\.vgpr_count:\s+", r"gpr_spill_count:\s+"
    else:
        registers, spilled = "REG:", "STACK:"
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(code.asm["cubin"])
            file.flush()
            command = [str(CUOBJDUMP), "--dump-resource-usage", file.name]
            text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    counts = [[*map(int, re.findall(rf"{name}(\d+)", text))] for name in (registers, spilled)]
    if not all(counts):
        raise ValueError(f"no {registers} or {spilled} in {text!r}")
    return KernelResources(counts[0][0], sum(counts[1]), int(code.metadata.shared))
