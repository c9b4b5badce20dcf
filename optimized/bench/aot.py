"""`python -m optimized.bench aot`: compile the kernels and check their resources, without a GPU.

Every operation of `compiled_operations` is compiled ahead of time, by default for sm_90 alone and
with `--all` for every target; with `--first` each kernel is compiled once. For sm_80 and sm_90 a
kernel must not spill registers and must fit into shared memory. For sm_100 and gfx942 it must
compile. A kernel that fails shows the reason and counts as a miss.

A second table counts what each operation launches: kernels, operators of PyTorch beside them, and
the operators of the vectorised body.
"""

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from math import prod
from unittest.mock import patch

import torch

from optimized.bench import machine_code, operations
from optimized.bench.launch_recorder import Launch, Operators, launched
from optimized.bench.machine_code import MULTIPROCESSORS, SHARED, KernelResources, Source, Target
from optimized.bench.operations import META, Operation
from optimized.bench.report import installed, text_table

DEFAULT = 90
"""The architecture that is compiled without `--all`."""

CHECKED = (80, 90)
"""The architectures on which a kernel must not spill."""

CHECKED_WITH = "3.7"
"""The version of Triton whose code must not spill; under another one, a spill is not a miss."""

HEAD = ("operation", "kernel", "target", "registers", "spilled", "shared", "waves", "bytes")
LAUNCHES = ("operation", "kernels", "operators", "eager operators")


def main(words: list[str]) -> None:
    """Compile, print the table, and exit with an error on a miss."""
    parser = argparse.ArgumentParser(prog="python -m optimized.bench aot", description=__doc__)
    parser.add_argument("--all", action="store_true", help="compile for every target")
    one = "compile each kernel only as the first operation launches it"
    parser.add_argument("--first", action="store_true", help=one)
    given = parser.parse_args(words)
    uses: dict[Source, tuple[str, Launch]] = {}
    counts: list[tuple[str, ...]] = [LAUNCHES]
    for one in operations.compiled_operations():
        with Operators(META) as operators:
            launches = one.launches
        counts.append((one.title, str(len(launches)), str(operators.count), eager_operators(one)))
        for launch in launches:
            uses.setdefault(machine_code.source(launch), (one.title, launch))
    if given.first:
        first = {(kernel.home, kernel.kernel): kernel for kernel in reversed(uses)}
        uses = {kernel: uses[kernel] for kernel in first.values()}
    wanted = [*product(uses, SHARED if given.all else (DEFAULT,))]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        codes = [*pool.map(code_or_error, *zip(*wanted, strict=True))]
    rows: list[tuple[str, ...]] = [HEAD]
    spills, misses = list[str](), list[str]()
    for (kernel, target), code in zip(wanted, codes, strict=True):
        title, launch = uses[kernel]
        place = title, kernel.kernel, str(target)
        name = f"{title}: {kernel.kernel} on {target}"
        if isinstance(code, str):
            misses.append(f"{name} does not compile: {code}")
            rows.append((*place, "does not compile", "", "", "", ""))
            continue
        waves = f"{waves_of(launch, code):.2f}" if target == DEFAULT else ""
        rows.append((*place, *map(str, code), waves, str(launch.nbytes)))
        if code.shared > SHARED[target]:
            misses.append(f"{name} shares {code.shared} bytes")
        if code.spilled and target in CHECKED:
            spills.append(f"{name} spills {code.spilled} bytes")
    print(text_table(rows), text_table(counts), sep="\n\n")
    version = installed("triton")
    if version.startswith(f"{CHECKED_WITH}."):
        misses += spills
    else:
        print(*(f"OVER {spill}, by Triton {version}" for spill in spills), sep="\n")
    print(*[f"MISS {miss}" for miss in misses] or ["no miss"], sep="\n")
    sys.exit(bool(misses))


def eager_operators(one: Operation) -> str:
    """Return the number of operators of an operation's vectorised body on a GPU.

    Tensors without values stand for those of the GPU. Where the body reads a value, the number is
    that of few tokens on a processor, and has a star.
    """
    if one.eager is None:
        return ""
    on_gpu = property(lambda tensor: tensor.device == META)
    try:
        inputs = one.inputs(META).eager
        with patch.object(torch.Tensor, "is_cuda", on_gpu), Operators(META) as operators:
            launched(partial(one.eager, **inputs))
        return str(operators.count)
    except (RuntimeError, NotImplementedError):  # a value is read
        pass
    alike = [few for few in operations.operations(small=True) if few.name == one.name]
    few = max(alike, key=lambda few: few.variant == one.variant)
    assert few.eager is not None
    processor = torch.device("cpu")
    inputs = few.inputs(processor).eager
    with Operators(processor) as operators:
        launched(partial(few.eager, **inputs))
    return f"{operators.count}*"


def waves_of(launch: Launch, code: KernelResources) -> float:
    """Return how often an H100 is filled by the programs of a launch."""
    resident = code.resident(launch.options.get("num_warps", 4))
    return prod(launch.grid) / (MULTIPROCESSORS * resident)


def code_or_error(kernel: Source, target: Target) -> KernelResources | str:
    """Return the machine code of a kernel, or in one line why it does not compile."""
    try:
        return machine_code.compile_kernel(kernel, target)
    except Exception as error:  # each stage of the compiler has its own type
        message = str(error).strip().splitlines() or [""]
        return f"{type(error).__name__}: {message[-1]}"
