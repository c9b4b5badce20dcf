"""Kernels compiled without a GPU, and the instructions of their machine code.

The compiler, the assembler and the disassembler come with Triton.
"""

import re
import subprocess
import tempfile
from collections import defaultdict
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from optimized.bench.launch_recorder import Launch

Target = int | str
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
SHARED = {80: 166912, 90: 232448, 100: 232448, "gfx942": 65536}
"""Bytes of shared memory that a program may have."""

DTYPES = {
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.bool: "i1",
    torch.uint8: "u8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
}
WARP = 32


class Source(NamedTuple):
    """A kernel as a launch specialises it, in a form that can be sent to another process."""

    home: str
    kernel: str
    signature: tuple[tuple[str, Any], ...]
    constants: tuple[tuple[tuple[int, ...], Any], ...]  # by place, within tuples by several
    aligned: tuple[tuple[int, ...], ...]  # places of the arguments that are multiples of 16
    options: tuple[tuple[str, int], ...]


class Code(NamedTuple):
    """The machine code of a kernel, and its resources."""

    registers: int
    spills: int
    shared: int
    instructions: tuple[str, ...]  # opcodes of one warp, none on AMD
    loops: tuple[tuple[int, int], ...]  # ranges of instructions, in order

    def counted(self, trips: tuple[float, ...]) -> dict[str, float]:
        """Return how often a warp runs each opcode, if it runs every branch once.

        `trips` are the average iterations of each loop; a loop without a number runs once.
        """
        weights = [1.0] * len(self.instructions)
        for (start, stop), trip in zip(self.loops, trips, strict=False):
            weights[start:stop] = [weight * trip for weight in weights[start:stop]]
        counts = defaultdict[str, float](float)
        for opcode, weight in zip(self.instructions, weights, strict=True):
            counts[opcode] += weight
        return counts


def source(launch: Launch) -> Source:
    """Return the kernel of a launch, specialised as by Triton's launcher."""
    notes = launch.kernel.fn.__annotations__
    constants, aligned = [], []

    def kind_at(place: tuple[int, ...], value: Any, constant: bool = False) -> Any:
        if isinstance(value, tuple):
            return type(value)(*(kind_at((*place, i), x) for i, x in enumerate(value)))
        if constant or value is None or (type(value) is int and value == 1):
            constants.append((place, value))
            return "constexpr"
        start = value.storage_offset() * value.itemsize if isinstance(value, Tensor) else value
        if type(start) is int and start % 16 == 0:
            aligned.append(place)
        return kind(value)

    signature = [
        (name, kind_at((place,), value, "constexpr" in str(notes.get(name))))
        for place, (name, value) in enumerate(launch.arguments.items())
    ]
    return Source(
        launch.kernel.fn.__module__,
        launch.kernel.fn.__name__,
        tuple(signature),
        tuple(constants),
        tuple(aligned),
        tuple(sorted(launch.options.items())),
    )


def kind(value: Any) -> str:
    """Return Triton's name for the type of an argument."""
    if isinstance(value, Tensor):
        return f"*{DTYPES[value.dtype]}"
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, int):
        return "i32" if -(2**31) <= value < 2**31 else "i64"
    return "fp32"


@cache
def compiled(wanted: Source, target: Target) -> Code:
    """Compile a kernel for an NVIDIA architecture by number, or an AMD one by name.

    The limit of registers is an option for NVIDIA alone.
    """
    gpu = GPUTarget("cuda", target, 32) if isinstance(target, int) else GPUTarget("hip", target, 64)
    made = triton.compile(
        ASTSource(
            fn=getattr(import_module(wanted.home), wanted.kernel),
            signature=dict(wanted.signature),
            constexprs=dict(wanted.constants),
            attrs={place: [["tt.divisibility", 16]] for place in wanted.aligned},
        ),
        target=gpu,
        options={
            name: value
            for name, value in wanted.options
            if isinstance(target, int) or name != "maxnreg"
        },
    )
    shared = int(made.metadata.shared)
    if isinstance(target, str):
        text = made.asm["amdgcn"]
        vectors = re.search(r"\.vgpr_count:\s+(\d+)", text)
        spilled = re.findall(r"\.[sv]gpr_spill_count:\s+(\d+)", text)
        return Code(int(vectors[1]) if vectors else 0, sum(map(int, spilled)), shared, (), ())
    usage = tool("cuobjdump", "--dump-resource-usage", made.asm["cubin"])
    registers = re.search(r"REG:(\d+)", usage)
    instructions, loops = parse_disassembly(tool("nvdisasm", "-c", made.asm["cubin"]))
    spills = sum(opcode.startswith(("STL", "LDL")) for opcode in instructions)
    return Code(int(registers[1]) if registers else 0, spills, shared, instructions, loops)


def tool(name: str, option: str, binary: bytes) -> str:
    """Return the output of one of NVIDIA's tools for a binary."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        command = [str(TOOLS / name), option, file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def parse_disassembly(text: str) -> tuple[tuple[str, ...], tuple[tuple[int, int], ...]]:
    """Return the opcodes of disassembled code, and its loops in order."""
    labels: dict[str, int] = {}
    opcodes: list[str] = []
    jumps: list[tuple[int, str]] = []
    for line in text.splitlines():
        if label := re.match(r"\s*(\.L_\w+):", line):
            labels[label[1]] = len(opcodes)
        elif found := re.match(r"\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?(\S+?)[\s;](.*)", line):
            if found[1] == "NOP":
                continue
            opcodes.append(found[1])
            if found[1].startswith("BRA") and (place := re.search(r"`\((\.L_\w+)\)", found[2])):
                jumps.append((len(opcodes), place[1]))
    # the jump onto itself after a kernel's last exit is no loop
    loops = {(labels[label], stop) for stop, label in jumps if labels.get(label, stop) < stop - 1}
    return tuple(opcodes), tuple(sorted(loops))
