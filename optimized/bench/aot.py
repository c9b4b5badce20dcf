"""`python -m optimized.bench aot`: compile the kernels and check their machine code, without a GPU.

Every row of `resource_budgets` is compiled ahead of time. For sm_80 and sm_90 it must not spill,
must fit into shared memory and must keep its budget of instructions. For sm_100 and gfx942 it must
compile. A row that fails shows the reason and counts as a miss.
"""

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import Any

from optimized.bench.report import installed

Cells = tuple[str, ...]

COUNTED = 90
"""The architecture whose instructions are always counted, with a budget or without."""

MARGIN = 1.05
"""The factor by which a row may exceed its budget."""

BUDGETED = "3.7"
"""The version of Triton that the budgets hold for; under another one, an excess is no miss."""

KERNELS: Cells = (
    *("operation", "kernel", "target", "programs", "registers", "spills", "shared"),
    *("lane-instructions an element", f"budget, Triton {BUDGETED}"),
)


def main() -> None:
    """Compile, print the table, and exit with an error on a miss."""
    os.environ.pop("TRITON_INTERPRET", None)  # before anything imports triton
    from optimized.bench.instruction_budgets import GATES
    from optimized.bench.machine_code import SHARED, source

    found = [gate.launches for gate in GATES]
    sources = dict.fromkeys(source(launch) for launches in found for launch in launches)
    wanted = [*product(sources, SHARED)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        made = dict(zip(wanted, pool.map(code_or_error, *zip(*wanted, strict=True)), strict=True))

    rows, misses = [KERNELS], list[str]()
    beyond = misses if installed("triton").startswith(f"{BUDGETED}.") else list[str]()
    for gate, launches in zip(GATES, found, strict=True):
        for target in SHARED:
            codes = [made[source(launch), target] for launch in launches]
            rows += checked_rows(gate, target, launches, codes, misses, beyond)
    print(text_table(rows))
    version = installed("triton")
    over = [] if beyond is misses else [f"OVER {what}, by Triton {version}" for what in beyond]
    print("\n" + "\n".join([*over, *([f"MISS {miss}" for miss in misses] or ["no miss"])]))
    sys.exit(bool(misses))


def code_or_error(wanted: Any, target: Any) -> Any:
    """Return the machine code of a kernel, or in one line why it does not compile."""
    from optimized.bench import machine_code

    try:
        return machine_code.compiled(wanted, target)
    except Exception as error:  # each stage of the compiler has its own type
        message = str(error).strip().splitlines() or [""]
        return f"{type(error).__name__}: {message[-1]}"


def checked_rows(
    gate: Any,
    target: Any,
    launches: list[Any],
    codes: list[Any],
    misses: list[str],
    beyond: list[str],
) -> list[Cells]:
    """Return the rows of an operation on one architecture, and append to `misses` and `beyond`.

    `beyond` takes the misses that depend on the version of Triton.
    """
    from optimized.bench.machine_code import SHARED

    rows, total, budget = list[Cells](), 0.0, gate.budgets.get(target)
    for launch, code in zip(launches, codes, strict=True):
        name = launch.kernel.fn.__name__
        if isinstance(code, str):
            misses.append(f"{gate.title}: {name} on {target} does not compile: {code}")
            place = gate.name, name, str(target), str(launch.programs)
            rows.append((*place, *[""] * 4, "does not compile"))
            continue
        numbers = (launch.programs, code.registers, code.spills, code.shared)
        share = ""
        if code.shared > SHARED[target]:
            misses.append(f"{gate.title}: {name} on {target} shares {code.shared} bytes")
        if budget is not None and code.spills:
            beyond.append(f"{gate.title}: {name} on {target} spills {code.spills} times")
        if budget is not None or target == COUNTED:
            trips = gate.trips.get(name, ())
            if len(trips) != len(code.loops):
                beyond.append(f"{gate.title}: {name} on {target} has loops {code.loops}")
            lanes = launch.lanes(sum(code.counted(trips).values())) / gate.elements
            total, share = total + lanes, f"{lanes:.1f}"
        rows.append((gate.name, name, str(target), *map(str, numbers), share, ""))
    if budget is None or any(isinstance(code, str) for code in codes):
        return rows
    if total > budget * MARGIN:
        beyond.append(f"{gate.title} on {target}: {total:.1f} lane-instructions, budget {budget}")
    return [*rows, (gate.title, "together", str(target), *[""] * 4, f"{total:.1f}", str(budget))]


def text_table(rows: list[Cells]) -> str:
    """Return rows as a text table with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)
