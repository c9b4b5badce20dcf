"""`python -m optimized.bench cuda`: test agreement on the GPU, then time the kernels.

The suite runs first, as a program: every launcher must agree with the reference, and so must every
timed operation with few tokens at the timed width and dtype. What does not agree is not timed. A
time is the median of `triton.testing.do_bench`, which passes over more memory than the L2 cache
holds before each call. `--dry-run` calls small shapes once on a CPU, in Triton's interpreter; it
shows only that the command works. Measurements on a GPU go to docs/measured.json row by row, so the
next run of the same code resumes a run that was interrupted, or that reached its limit of seconds.
"""

import argparse
import gc
import json
import platform
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from triton.testing import do_bench

from optimized import kernels
from optimized._atomic_files import write_atomically
from optimized.bench.agreement import failing_tests
from optimized.bench.operations import STEPS, Named, Operation, operations
from optimized.bench.report import MEASURED, commit, digest, installed, processor, row_cells, today
from reference.contract.enforce import trusted

SCHEMA = 1
"""Version of the schema of docs/measured.json."""

BUDGET = 480.0
"""Seconds after which no further row begins."""


def microseconds(device: torch.device, call: Callable[[], object]) -> float:
    """Return the time of a call: the median of many on a GPU, of one on a CPU."""
    if device.type == "cuda":
        milliseconds: Any = do_bench(call, return_mode="median")
        return 1e3 * milliseconds
    start = time.perf_counter()
    call()
    return 1e6 * (time.perf_counter() - start)


def captured(device: torch.device, call: Callable[[], object]) -> Callable[[], object]:
    """Return a function that replays a call as a CUDA graph, or the call itself on a CPU."""
    if device.type == "cpu":
        return call
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    # refuse a call that synchronises here: a failed capture corrupts the allocator
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.cuda.stream(aside):
            call()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.current_stream().wait_stream(aside)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        call()
    return recorded.replay


def time_side(device: torch.device, call: Callable[[], object], graph: bool = False) -> Named:
    """Return the time of a call, launched or replayed as a graph, or why it failed."""
    try:
        return dict(us=microseconds(device, captured(device, call) if graph else call))
    except Exception as reason:  # such as a missing package, unsupported shapes, or a wait
        return dict(refused=explained(reason))


def explained(reason: Exception) -> str:
    """Return the type and the first line of an error."""
    return f"{type(reason).__name__}: {reason}".splitlines()[0][:200]


def tensor_bytes(value: object) -> int:
    """Return the bytes of the tensors inside a value, counting each storage once."""
    storages = (x.untyped_storage() for x in tree_leaves(value) if isinstance(x, Tensor))
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def copying(device: torch.device) -> float:
    """Return the bandwidth of a copy: bytes read and written a second."""
    size = 2**30 if device.type == "cuda" else 2**16
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2e6 * size / microseconds(device, lambda: target.copy_(source))


def measured(device: torch.device, operation: Operation, bandwidth: float) -> Named:
    """Measure all sides of an operation; return its row."""
    inputs = operation.inputs(device)
    kernel = partial(operation.kernel, **inputs.kernel)
    row = about_row(operation, copy_bytes_per_s=bandwidth)
    with trusted():
        row["bytes"] = tensor_bytes(inputs.kernel) + tensor_bytes(kernel())
        row["kernel"] = dict(us=microseconds(device, kernel))
        row["graph"] = time_side(device, kernel, graph=True)
        if operation.eager is not None:
            row["eager"] = time_side(device, partial(operation.eager, **inputs.eager))
        if operation.rivals:
            row["fp16"] = of_rivals(device, operation, inputs.fp16)
    least = min(row["kernel"]["us"], row["graph"].get("us", row["kernel"]["us"]))
    row["bytes_per_s"] = 1e6 * row["bytes"] / least
    row["of_copy"] = row["bytes_per_s"] / bandwidth
    graphs = row.get("fp16", {}).get("graph", {})
    for name, ours, theirs in (
        ("eager", row["kernel"], row.get("eager", {})),
        ("fp16", row["kernel"], row.get("fp16", {})),
        ("fp16_graph", row["graph"], graphs),
    ):
        if "us" in ours and "us" in theirs:
            row[f"{name}_ratio"] = theirs["us"] / ours["us"]
    return row


def about_row(operation: Operation, **rest: object) -> Named:
    """Return the identifying fields of a row, and further ones."""
    return dict(step=operation.step, operation=operation.name, shape=operation.shape) | rest


def of_rivals(device: torch.device, operation: Operation, inputs: Mapping[str, Any]) -> Named:
    """Return the time of each rival, the fastest one, and the fastest as a CUDA graph."""
    calls = {name: partial(rival, **inputs) for name, rival in operation.rivals.items()}
    sides = {name: time_side(device, call) for name, call in calls.items()}
    timed = [name for name, side in sides.items() if "us" in side]
    graphs = {name: time_side(device, calls[name], graph=True) for name in timed}
    return fastest(sides) | dict(graph=fastest(graphs))


def fastest(sides: dict[str, Named]) -> Named:
    """Return all sides and the fastest of those with a time."""
    there = {name: side["us"] for name, side in sides.items() if "us" in side}
    if not there:
        return dict(fastest=None, sides=sides)
    name = min(there, key=there.__getitem__)
    return dict(fastest=name, us=there[name], sides=sides)


def about(device: torch.device, given_commit: str) -> Named:
    """Return the hardware, versions and code of a run; rows where they are equal form a run."""
    return dict(
        dry_run=device.type == "cpu",
        device=processor() if device.type == "cpu" else torch.cuda.get_device_name(device),
        python=platform.python_version(),
        torch=torch.__version__,
        triton=installed("triton"),
        cuda=torch.version.cuda,
        commit=given_commit or commit(),
        code=digest("optimized", "reference"),
        date=today(),
    )


class Record:
    """A run in its file; each row is written when it is measured."""

    def __init__(self, about: Named, file: Path | None) -> None:
        self.about, self.file = about, file
        self.agrees, self.rows = False, list[Named]()
        there = json.loads(file.read_text())["runs"] if file and file.exists() else []
        self.others = [run for run in there if code_of(run["about"]) != code_of(about)]
        for run in there:
            if run not in self.others:
                self.agrees, self.rows = bool(run["agreed"]), run["rows"]

    def row(self, wanted: Named) -> Named | None:
        """Return the row of an operation, or None."""
        return next((row for row in self.rows if key(row) == key(wanted)), None)

    def add(self, row: Named) -> None:
        """Write a row, replacing an earlier one."""
        self.rows = [old for old in self.rows if key(old) != key(row)] + [row]
        if self.file is not None:
            agreed = [*kernels.__all__] if self.agrees else []
            this = dict(about=self.about, agreed=agreed, rows=self.rows)
            said = dict(schema_version=SCHEMA, runs=[*self.others, this])
            write_atomically(self.file, json.dumps(said, indent=1) + "\n")


def code_of(about: Named) -> Named:
    """Return the fields that identify a run: all but the commit, which may change other files."""
    return {name: value for name, value in about.items() if name != "commit"}


def key(row: Named) -> Named:
    """Return the fields that identify a row."""
    return {name: row[name] for name in ("step", "operation", "shape")}


def disagreeing(device: torch.device) -> set[str]:
    """Run the agreement tests of the launchers and operations; return those that fail."""
    few = ("--examples", "1") if device.type == "cpu" else ("-n", "logical")
    names = failing_tests([*kernels.__all__], "--device", str(device), *few, timed=True)
    return {name.partition("[")[2].removesuffix("]").removeprefix("optimized-") for name in names}


def run(device: torch.device, wanted: list[Operation], record: Record, until: float) -> list[str]:
    """Measure operations that agree; print and write each row, and return those that failed.

    Rows that the file holds for the same code and machine are not measured again. At the time
    `until`, as `time.monotonic` tells it, no further row begins; those that remain are printed.
    """
    print(", ".join(f"{name} {value}" for name, value in record.about.items()), flush=True)
    apart = set[str]() if record.agrees else disagreeing(device)
    record.agrees = not apart
    bandwidth = copying(device)
    print(f"a copy passes {bandwidth / 1e9:.0f} GB/s", flush=True)
    failed, left = list[str](), list[str]()
    for operation in wanted:
        row = record.row(about_row(operation))
        if wrong := apart & {operation.kind, *operation.name.split(" + ")}:
            failed.append(f"{operation.title} does not agree: {', '.join(wrong)}")
            continue
        if row is None and time.monotonic() >= until:
            left.append(operation.title)
            continue
        if row is None:
            try:
                row = measured(device, operation, bandwidth)
            except Exception as reason:
                row = about_row(operation, failed=explained(reason))
            record.add(row)
            check_usable(device)
        cells = [f"{column} {cell}" for column, cell in row_cells(row).items()]
        print(operation.step, *cells, sep="; ", flush=True)
        if "failed" in row:
            failed.append(f"{operation.title}: {row['failed']}")
    if left:
        print(f"out of time; the same command goes on with {len(left)} rows:", *left, sep="\n  ")
    return failed


def check_usable(device: torch.device) -> None:
    """Free the memory of a row; exit if an error has made the GPU unusable for this process."""
    gc.collect()
    if device.type == "cuda":
        try:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        except Exception as reason:
            sys.exit(f"{explained(reason)}\nthe GPU is lost; the same command goes on without it")


def arguments(words: list[str]) -> Any:
    """Return the parsed command line, with the operations that it asks for."""
    parser = argparse.ArgumentParser(prog="python -m optimized.bench cuda", description=__doc__)
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"of {', '.join(STEPS)}")
    limit = f"begin no row after them (default {BUDGET:.0f}); the next run goes on"
    parser.add_argument("--seconds", type=float, default=BUDGET, help=limit)
    parser.add_argument("--only", default="", metavar="TEXT", help="measure only rows with it")
    parser.add_argument("--anew", action="store_true", help="also measure rows that the file has")
    parser.add_argument("--dry-run", action="store_true", help="small shapes on a CPU")
    parser.add_argument("--json", type=Path, metavar="FILE", help=f"write it, not {MEASURED.name}")
    parser.add_argument("--commit", default="", help="the commit, where git is missing")
    given = parser.parse_args(words)
    if unknown := [step for step in given.steps if step not in STEPS]:
        parser.error(f"no such step: {', '.join(unknown)}; there are {', '.join(STEPS)}")
    if not (given.dry_run or torch.cuda.is_available()):
        parser.error("there is no GPU here; use --dry-run to try the command on a CPU")
    steps = given.steps or STEPS
    there = [operation for operation in operations(given.dry_run) if operation.step in steps]
    given.operations = [operation for operation in there if given.only in operation.title]
    if not given.operations:
        titles = "\n  ".join(operation.title for operation in there)
        parser.error(f"no row has the text {given.only!r}; there are\n  {titles}")
    return given


def main(words: list[str]) -> None:
    """Test agreement, measure, print and write."""
    given = arguments(words)
    until = time.monotonic() + given.seconds
    device = torch.device("cpu" if given.dry_run else "cuda")
    # the reasons of a backend that refuses; a row has the first of them
    warnings.filterwarnings("ignore", module=r"optimized\.bench\.operations")
    file = given.json or (None if given.dry_run else MEASURED)
    record = Record(about(device, given.commit), file)
    if given.anew:
        record.agrees = False
        asked = [key(about_row(operation)) for operation in given.operations]
        record.rows = [row for row in record.rows if key(row) not in asked]
    if failed := run(device, given.operations, record, until):
        sys.exit("\n".join(["rows that failed:", *failed]))
