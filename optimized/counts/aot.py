"""`python -m optimized.bench aot`: compile the kernels and check their machine code, without a GPU.

Every row of `gates` is compiled ahead of time. For sm_80 and sm_90 it must not spill, must fit into
shared memory and must keep its budget of instructions. For sm_100 and gfx942 it must compile. A row
that fails shows the reason and counts as a miss. `--write` stores the predictions in
docs/predicted.json, which a page of the documentation shows; without it, that file must agree.
"""

import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import Any

from optimized.bench.report import PREDICTED, installed, replace

Cells = tuple[str, ...]

TIMED = 90
"""The architecture for which times are predicted."""

MARGIN = 1.05
"""The factor by which a row may exceed its budget."""

BUDGETED = "3.7"
"""The version of Triton that the budgets hold for; under another one, an excess is no miss."""

KERNELS: Cells = (
    *("operation", "kernel", "target", "programs", "registers", "spills", "shared"),
    *("lane-instructions an element", f"budget, Triton {BUDGETED}"),
)
TIMES: Cells = (
    *("operation", "shape", "kernels", "H100 µs", "bound by", "H200 µs", "bound by"),
    *("goal µs", "paper µs"),
)


SCHEMA = 1
"""Version of the schema of docs/predicted.json."""


def main(write: bool = False) -> None:
    """Compile, print both tables, and exit with an error on a miss."""
    os.environ.pop("TRITON_INTERPRET", None)  # before anything imports triton
    from optimized.counts.gates import GATES
    from optimized.counts.machine_code import SHARED, source

    found = [gate.launches for gate in GATES]
    sources = dict.fromkeys(source(launch) for launches in found for launch in launches)
    wanted = [*product(sources, SHARED)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        made = dict(zip(wanted, pool.map(code_or_error, *zip(*wanted, strict=True)), strict=True))

    rows, times, misses = [KERNELS], list[dict[str, Any]](), list[str]()
    beyond = misses if installed("triton").startswith(f"{BUDGETED}.") else list[str]()
    for gate, launches in zip(GATES, found, strict=True):
        for target in SHARED:
            codes = [made[source(launch), target] for launch in launches]
            rows += checked_rows(gate, target, launches, codes, misses, beyond)
        codes = [made[source(launch), TIMED] for launch in launches]
        if not any(isinstance(code, str) for code in codes):
            times.append(timed(gate, launches, codes))
    print(text_table(rows))
    print("\npredicted, not measured: from counted instructions, and bytes that pass once a kernel")
    print(text_table([TIMES, *map(cells, times)]))
    found_now = dict(schema_version=SCHEMA, triton=installed("triton"), rows=times)
    if len(times) < len(GATES):
        misses.append(f"{PREDICTED.name} is left as it is: not all is compiled")
    elif write:
        replace(PREDICTED, json.dumps(found_now, indent=1, ensure_ascii=False) + "\n")
    elif stale(found_now):
        misses.append(f"{PREDICTED.name} says something else: write it with --write")
    version = found_now["triton"]
    over = [] if beyond is misses else [f"OVER {what}, by Triton {version}" for what in beyond]
    print("\n" + "\n".join([*over, *([f"MISS {miss}" for miss in misses] or ["no miss"])]))
    sys.exit(bool(misses))


def code_or_error(wanted: Any, target: Any) -> Any:
    """Return the machine code of a kernel, or in one line why it does not compile."""
    from optimized.counts import machine_code

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
    from optimized.counts.machine_code import SHARED

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
        if budget is not None or target == TIMED:
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


def timed(gate: Any, launches: list[Any], codes: list[Any]) -> dict[str, Any]:
    """Return the predicted times of an operation, in microseconds."""
    from optimized.counts.machine_code import GPUS, predicted

    counts = [
        code.counted(gate.trips.get(launch.kernel.fn.__name__, ()))
        for launch, code in zip(launches, codes, strict=True)
    ]
    times = {name: predicted(launches, counts, gpu) for name, gpu in GPUS.items()}
    return dict(
        operation=gate.name,
        shape=gate.shape,
        kernels=len(launches),
        predicted={
            name: dict(us=round(1e6 * time.seconds, 1), bound=time.bound)
            for name, time in times.items()
        },
        goal=float(gate.goal) if gate.goal else None,
        paper=float(gate.paper) if gate.paper else None,
    )


def cells(row: dict[str, Any]) -> Cells:
    """Return the predicted times of an operation as cells of the table."""
    times = [
        str(cell) for time in row["predicted"].values() for cell in (time["us"], time["bound"])
    ]
    rest = [f"{row[name]:g}" if row[name] else "" for name in ("goal", "paper")]
    return (row["operation"], row["shape"], str(row["kernels"]), *times, *rest)


def stale(found: dict[str, Any]) -> bool:
    """Whether the file holds other predictions by the same version of Triton."""
    held = json.loads(PREDICTED.read_text()) if PREDICTED.exists() else found
    return held["triton"] == found["triton"] and held != found


def text_table(rows: list[Cells]) -> str:
    """Return rows as a text table with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)
