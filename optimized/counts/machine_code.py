"""Kernels compiled without a GPU, and the instructions of their machine code.

The compiler, the assembler and the disassembler come with Triton. Times derived from counted
instructions and bytes are predictions, never measurements.
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

from optimized.counts.launches import Launch

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
    signature: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Any], ...]
    aligned: tuple[int, ...]  # places of the arguments that are multiples of 16
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
    signature, constants, aligned = [], [], []
    for place, (name, value) in enumerate(launch.arguments.items()):
        note = str(notes.get(name))
        if "constexpr" in note or value is None or (type(value) is int and value == 1):
            constants.append((name, value))
            signature.append((name, "constexpr"))
            continue
        signature.append((name, kind(value)))
        start = value.storage_offset() * value.itemsize if isinstance(value, Tensor) else value
        if type(start) is int and start % 16 == 0:
            aligned.append(place)
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

    Inline instructions of NVIDIA stand under a constant `PTX`, which is off for AMD. The limit of
    registers is an option for NVIDIA alone.
    """
    gpu = GPUTarget("cuda", target, 32) if isinstance(target, int) else GPUTarget("hip", target, 64)
    made = triton.compile(
        ASTSource(
            fn=getattr(import_module(wanted.home), wanted.kernel),
            signature=dict(wanted.signature),
            constexprs={
                name: value if isinstance(target, int) or name != "PTX" else False
                for name, value in wanted.constants
            },
            attrs={(place,): [["tt.divisibility", 16]] for place in wanted.aligned},
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
    instructions, loops = parsed(tool("nvdisasm", "-c", made.asm["cubin"]))
    spills = sum(opcode.startswith(("STL", "LDL")) for opcode in instructions)
    return Code(int(registers[1]) if registers else 0, spills, shared, instructions, loops)


def tool(name: str, option: str, binary: bytes) -> str:
    """Return the output of one of NVIDIA's tools for a binary."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        command = [str(TOOLS / name), option, file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def parsed(text: str) -> tuple[tuple[str, ...], tuple[tuple[int, int], ...]]:
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


class Gpu(NamedTuple):
    """The bandwidth of a copy in bytes a second, the multiprocessors, and their clock in hertz."""

    bandwidth: float
    processors: int
    clock: float


GPUS = {"H100": Gpu(3.0e12, 132, 1.755e9), "H200": Gpu(4.3e12, 132, 1.755e9)}
GAP = 1.5e-6
"""Seconds from one kernel of a CUDA graph to the next: an estimate."""

LANES = {
    "issue": 128,
    "integer": 64,
    "multiplier": 128,
    "special": 16,
    "float64": 64,
    "memory pipe": 32,
}
"""Results a clock of one multiprocessor, from NVIDIA's guide for compute capability 9.0."""

PIPES = {
    "integer": (
        *("LOP3", "PLOP3", "SHF", "IADD3", "ISETP", "SEL", "PRMT", "FMNMX", "FSETP", "FSEL"),
        *("IMNMX", "VIMNMX", "LEA", "VOTE", "I2F", "F2I", "F2F", "I2FP", "F2FP", "IABS"),
        *("SHL", "SHR", "BMSK", "SGXT", "VIADD", "VIADDMNMX", "IADD"),
    ),
    "multiplier": ("IMAD", "FFMA", "FMUL", "FADD"),
    "special": ("MUFU", "POPC", "FLO", "BREV", "REDUX"),
    "float64": ("DADD", "DMUL", "DFMA", "DSETP", "DMNMX"),
    "memory pipe": ("LDG", "STG", "LDS", "STS", "SHFL", "RED", "ATOM", "ATOMG", "ATOMS", "LDSM"),
}
PIPE = {opcode: pipe for pipe, opcodes in PIPES.items() for opcode in opcodes}


def busy(counts: dict[str, float]) -> dict[str, float]:
    """Return the clocks for which a warp's instructions occupy each part of a multiprocessor."""
    clocks = defaultdict[str, float](float)
    for opcode, count in counts.items():
        name, *words = opcode.split(".")
        clocks["issue"] += count * WARP / LANES["issue"]
        if name in ("HMMA", "HGMMA"):
            clocks["tensor cores"] += count * multiplied(name, words)
        elif pipe := PIPE.get(name):
            wide = max([int(word) // 32 for word in words if word in ("64", "128")], default=1)
            several = wide if pipe == "memory pipe" else 1
            clocks[pipe] += count * several * WARP / LANES[pipe]
    return clocks


def multiplied(name: str, words: list[str]) -> float:
    """Return the clocks of a matrix product: 2048 multiply-adds each for HGMMA, 2/3 for HMMA."""
    shape = next(word for word in words if re.fullmatch(r"\d+(x\d+)*", word))
    if name == "HMMA":
        depth = {"16816": 16, "1688": 8}[shape]
        return 16 * 8 * depth / 2048 * 1.5
    rows, columns, depth = map(int, shape.split("x"))
    return rows * columns * depth / 4 / 2048  # four warps share a product, and each issues it


class Prediction(NamedTuple):
    """The seconds of an operation, and the resource that takes most of them."""

    seconds: float
    bound: str


def predicted(launches: list[Launch], counts: list[dict[str, float]], gpu: Gpu) -> Prediction:
    """Return the sum of the kernels' times; the busiest resource of a kernel sets its time."""
    spent = defaultdict[str, float](float, launches=len(launches) * GAP)
    for launch, count in zip(launches, counts, strict=True):
        rounds = -(-launch.programs // gpu.processors) * launch.warps
        times = {part: clocks * rounds / gpu.clock for part, clocks in busy(count).items()}
        times["bandwidth"] = launch.moved / gpu.bandwidth
        part = max(times, key=times.__getitem__)
        spent[part] += times[part]
    return Prediction(sum(spent.values()), max(spent, key=spent.__getitem__))
