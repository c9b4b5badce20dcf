"""`python -m optimized.bench aot`: compile the kernels and check their resources, without a GPU.

Every operation of `compiled_operations` is compiled ahead of time, by default for sm_90 alone and
with `--all` for every target; with `--first` each kernel is compiled once. For sm_80 and sm_90 a
kernel must not spill registers and must fit into shared memory. For sm_100 and gfx942 it must
compile. A kernel that fails shows the reason and counts as a miss.
"""

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import product

from optimized.bench import machine_code, operations
from optimized.bench.machine_code import SHARED, KernelResources, Source, Target
from optimized.bench.report import installed

DEFAULT = 90
"""The architecture that is compiled without `--all`."""

CHECKED = (80, 90)
"""The architectures on which a kernel must not spill."""

CHECKED_WITH = "3.7"
"""The version of Triton whose code must not spill; under another one, a spill is not a miss."""

ROW = "{:63}  {:18}  {:6}  {:>9}  {:>7}  {:>6}"
HEAD = ("operation", "kernel", "target", "registers", "spilled", "shared")


def main(words: list[str]) -> None:
    """Compile, print the table, and exit with an error on a miss."""
    parser = argparse.ArgumentParser(prog="python -m optimized.bench aot", description=__doc__)
    parser.add_argument("--all", action="store_true", help="compile for every target")
    first = "compile each kernel only as the first operation launches it"
    parser.add_argument("--first", action="store_true", help=first)
    options = parser.parse_args(words)
    uses: dict[Source, str] = {}
    for operation in operations.compiled_operations():
        for launch in operation.launches:
            uses.setdefault(machine_code.source(launch), operation.title)
    if options.first:
        once = {(kernel.home, kernel.kernel): kernel for kernel in reversed(uses)}
        uses = {kernel: uses[kernel] for kernel in once.values()}
    wanted = [*product(uses, SHARED if options.all else (DEFAULT,))]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        codes = [*pool.map(code_or_error, *zip(*wanted, strict=True))]
    print(ROW.format(*HEAD))
    spills, misses = list[str](), list[str]()
    for (kernel, target), code in zip(wanted, codes, strict=True):
        name = f"{uses[kernel]}: {kernel.kernel} on {target}"
        resources = ("", "", "") if isinstance(code, str) else code
        print(ROW.format(uses[kernel], kernel.kernel, str(target), *resources))
        if isinstance(code, str):
            misses.append(f"{name} does not compile: {code}")
            continue
        if code.shared > SHARED[target]:
            misses.append(f"{name} shares {code.shared} bytes")
        if code.spilled and target in CHECKED:
            spills.append(f"{name} spills {code.spilled} bytes")
    version = installed("triton")
    if version.startswith(f"{CHECKED_WITH}."):
        misses += spills
    else:
        print(*(f"OVER {spill}, by Triton {version}" for spill in spills), sep="\n")
    print(*[f"MISS {miss}" for miss in misses] or ["no miss"], sep="\n")
    sys.exit(bool(misses))


def code_or_error(kernel: Source, target: Target) -> KernelResources | str:
    """Return the resources of a compiled kernel, or in one line why it does not compile."""
    try:
        return machine_code.compile_kernel(kernel, target)
    except Exception as error:  # each stage of the compiler has its own type
        message = str(error).strip().splitlines() or [""]
        return f"{type(error).__name__}: {message[-1]}"
