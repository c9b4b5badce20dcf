"""`python -m optimized.bench cuda`: agreement on the GPU, then what kernels take there.

Every figure is a median of runs between two CUDA events, 50 of a kernel, each on inputs drawn anew
and after a pass over more memory than the L2 has. With `--dry-run` it is one run of small
shapes on a CPU, in Triton's interpreter, which tell that the command works and nothing else. What
is measured on a GPU goes to docs/measured.json, row by row: a run that is cut short leaves what it
has.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from optimized import kernels
from optimized.bench.agreement import agree
from optimized.bench.operations import STEPS, Inputs, Named, Operation, operations, tuned
from optimized.bench.report import MEASURED, PREDICTED, replace, surroundings
from optimized.bench.row import moved
from reference.contract import trusted

SCHEMA = 1
"""Version of what docs/measured.json holds."""

SIDES = ("kernel", "graph", "eager", "fp16")
RUNS, SECONDS = 50, 3.0
"""Of a kernel; an eager side that takes long runs for that many seconds, and 5 times at least."""


class Clock:
    """Seconds of a call on a GPU, between two events."""

    dry = False

    def __init__(self, device: torch.device) -> None:
        self.device = device
        cached = torch.cuda.get_device_properties(device).L2_cache_size
        self.flushed = torch.empty(4 * cached, dtype=torch.int8, device=device)

    def once(self, call: Callable[[], object]) -> float:
        """Return the seconds of a first call, by the clock on the wall."""
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        return time.perf_counter() - start

    def each(
        self, call: Callable[[], object], fresh: Callable[[int], None], runs: int
    ) -> list[float]:
        """Return the seconds of several calls."""
        pairs = []
        for number in range(runs):
            fresh(number)
            self.flushed.zero_()
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            stop.record()
            pairs.append((start, stop))
        torch.cuda.synchronize()
        return [start.elapsed_time(stop) / 1000 for start, stop in pairs]

    def captured(self, call: Callable[[], object]) -> Callable[[], object]:
        """Return what replays a call as a CUDA graph."""
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            call()
        torch.cuda.current_stream().wait_stream(aside)
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            call()
        return recorded.replay


class DryClock(Clock):
    """The same on a CPU, where there are no events and no graphs."""

    dry = True

    def __init__(self, device: torch.device) -> None:
        self.device, self.flushed = device, torch.empty(2**16, dtype=torch.int8)

    def once(self, call: Callable[[], object]) -> float:
        """Return the seconds of a first call."""
        return self.each(call, lambda _: None, 1)[0]

    def each(
        self, call: Callable[[], object], fresh: Callable[[int], None], runs: int
    ) -> list[float]:
        """Return the seconds of one call, however many are asked for."""
        seconds = []
        for number in range(min(runs, 1)):
            fresh(number)
            self.flushed.zero_()
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
        return seconds

    def captured(self, call: Callable[[], object]) -> Callable[[], object]:
        """Return the call itself."""
        return call


def tensors(value: object) -> Iterator[Tensor]:
    """Yield the tensors inside a value."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        yield from chain.from_iterable(map(tensors, value))
    elif isinstance(value, dict):
        yield from chain.from_iterable(map(tensors, value.values()))


def held(value: object) -> int:
    """Return the bytes of the tensors inside a value, each storage once."""
    storages = (tensor.untyped_storage() for tensor in tensors(value))
    return sum({one.data_ptr(): one.nbytes() for one in storages}.values())


def redraw(inputs: Inputs, seed: int) -> None:
    """Draw every number and every word anew, in place; masks, places and lengths stay.

    Queries, keys and values lie around 0; scores, and what a compressed cache stores, above.
    """
    drawn = set[int]()
    generators: dict[torch.device, torch.Generator] = {}
    for side in inputs:
        for name, value in side.items():
            low = -1.0 if isinstance(value, Tensor) and name != "scores" else 0.0
            for tensor in tensors(value):
                if tensor.data_ptr() in drawn or not tensor.numel():
                    continue
                drawn.add(tensor.data_ptr())
                new = torch.Generator(tensor.device).manual_seed(seed)
                generator = generators.setdefault(tensor.device, new)
                if tensor.is_floating_point():
                    tensor.uniform_(low, 1, generator=generator)
                elif tensor.dtype == torch.int32:
                    tensor.random_(-(2**31), 2**31 - 1, generator=generator)
                elif tensor.dtype == torch.uint8:
                    tensor.random_(0, 256, generator=generator)


def timed(
    clock: Clock, call: Callable[[], object], inputs: Inputs, runs: int | None = RUNS
) -> Named:
    """Return the median of a side, or why there is none; without `runs`, as many as fit."""
    try:
        first = clock.once(call)
        for _ in range(2 * (not clock.dry)):
            again = clock.once(call)
            runs = runs or max(5, min(RUNS, int(SECONDS / again)))
        seconds = clock.each(call, lambda seed: redraw(inputs, seed), runs or RUNS)
    except Exception as reason:  # a rival that is not there, or takes other shapes
        return dict(refused=f"{type(reason).__name__}: {reason}".splitlines()[0][:200])
    return dict(us=1e6 * median(seconds), runs=len(seconds), first_ms=1e3 * first)


def copying(clock: Clock) -> float:
    """Return the bytes a second that a copy reads and writes."""
    source = torch.empty(2**16 if clock.dry else 2**30, dtype=torch.int8, device=clock.device)
    target = torch.empty_like(source)
    seconds = clock.each(lambda: target.copy_(source), lambda _: None, RUNS)
    return 2 * source.nbytes / median(seconds)


def measured(clock: Clock, one: Operation, bandwidth: float, predictions: list[Named]) -> Named:
    """Return the row of an operation."""
    row: Named = dict(step=one.step, operation=one.name, shape=one.shape, options=dict(one.options))
    inputs = one.inputs(clock.device)
    with trusted(), tuned(one.options) if one.options else nullcontext():
        if one.kernel is not None:
            row |= of_kernel(clock, one, inputs, bandwidth)
        if one.eager is not None:
            row["eager"] = timed(clock, lambda: one.eager(**inputs.eager), inputs, None)  # pyright: ignore[reportOptionalCall]
        fp16 = {
            name: timed(clock, lambda rival=rival: rival(**inputs.fp16), inputs, None)
            for name, rival in one.rivals.items()
        }
    if fp16:
        there = {name: side["us"] for name, side in fp16.items() if "us" in side}
        fastest = min(there, key=there.__getitem__) if there else None
        row["fp16"] = dict(fastest=fastest, sides=fp16)
        if fastest:
            rate = held(inputs.fp16) / there[fastest] * 1e6
            row["fp16"] |= dict(us=there[fastest], bytes_per_s=rate, of_copy=rate / bandwidth)
    for name in ("eager", "fp16"):
        if "us" in row.get("kernel", {}) and "us" in row.get(name, {}):
            row[f"{name}_ratio"] = row[name]["us"] / row["kernel"]["us"]
    return row | expected(one, predictions, clock)


def of_kernel(clock: Clock, one: Operation, inputs: Inputs, bandwidth: float) -> Named:
    """Return what a kernel takes, launched and replayed, and how near that is to a copy."""

    def call() -> object:
        assert one.kernel is not None
        return one.kernel(**inputs.kernel)

    row: Named = dict(kernel=timed(clock, call, inputs))
    if "us" not in row["kernel"]:
        return row
    try:
        row["graph"] = timed(clock, clock.captured(call), inputs)
    except Exception as reason:  # what waits for the GPU cannot be captured
        row["graph"] = dict(refused=f"{type(reason).__name__}: {reason}".splitlines()[0][:200])
    least = min(side["us"] for side in row.values() if "us" in side)
    moved = held(inputs.kernel) + held(call())
    rate = moved / least * 1e6
    return row | dict(bytes=moved, bytes_per_s=rate, of_copy=rate / bandwidth)


def expected(one: Operation, predictions: list[Named], clock: Clock) -> Named:
    """Return the goal, the prediction and the paper's figure of an operation, in microseconds."""
    found = [
        row for row in predictions if (row["operation"], row["shape"]) == (one.name, one.shape)
    ]
    if not found:
        return {}
    device = "" if clock.dry else torch.cuda.get_device_name(clock.device)
    times = [time["us"] for name, time in found[0]["predicted"].items() if name in device]
    return dict(
        goal_us=found[0]["goal"], predicted_us=[*times, None][0], paper_us=found[0]["paper"]
    )


def outputs(device: torch.device) -> dict[str, list[Tensor]]:
    """Return what kernels make of small inputs, the same on every device."""
    made = {}
    for one in operations(small=True):
        if one.kernel is not None and not one.options:
            torch.manual_seed(0)
            inputs = one.inputs(torch.device("cpu"))
            with trusted():
                found = one.kernel(**moved(inputs.kernel, device))
            made[f"{one.name} {one.shape}"] = [tensor.cpu() for tensor in tensors(found)]
    return made


def interpreted() -> dict[str, list[Tensor]]:
    """Return what Triton's interpreter makes of the same, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "outputs.pt")
        again(["--outputs", str(file)], check=True)
        return torch.load(file)


def compared(ours: dict[str, list[Tensor]], theirs: dict[str, list[Tensor]]) -> list[Named]:
    """Return, for each kernel, how many numbers differ in their bits, and by how much at most."""
    rows = []
    for name, found in ours.items():
        pairs = list(zip(found, theirs[name], strict=True))
        apart = [(a.double() - b.double()).abs().nan_to_num().max() for a, b in pairs if a.numel()]
        rows.append(
            dict(
                step="bits",
                operation=name,
                numbers=sum(a.numel() for a, _ in pairs),
                differ=sum(int((a != b).sum()) for a, b in pairs),
                largest=max(map(float, apart), default=0.0),
            )
        )
    return rows


def again(words: list[str], check: bool = False) -> int:
    """Run the command in Triton's interpreter, in a process of its own."""
    command = [sys.executable, "-m", "optimized.bench", "cuda", *words]
    there = os.environ | dict(TRITON_INTERPRET="1")
    return subprocess.run(command, env=there, check=check).returncode


def about(clock: Clock, bandwidth: float) -> Named:
    """Say where and of what a run is."""
    device, torch_version, triton, commit, date = surroundings(str(clock.device), 1)
    return dict(
        dry_run=clock.dry,
        device=device,
        python=platform.python_version(),
        torch=torch_version,
        triton=triton,
        cuda=torch.version.cuda,
        commit=commit,
        date=date,
        copy_bytes_per_s=bandwidth,
        flushed_bytes=clock.flushed.nbytes,
        agreement="passed",
    )


def record(file: Path, run: Named) -> None:
    """Write a run behind those that the file holds, or over itself."""
    runs = json.loads(file.read_text())["runs"] if file.exists() else []
    runs = [one for one in runs if one["about"] != run["about"]]
    replace(file, json.dumps(dict(schema_version=SCHEMA, runs=[*runs, run]), indent=1) + "\n")


def line(row: Named) -> str:
    """Return a row in one line."""
    if row["step"] == "bits":
        found = f"{row['differ']} of {row['numbers']} differ, by {row['largest']:.3g} at most"
        return f"bits    {row['operation']}; {found}"
    cells = [f"{row['step']:7} {row['operation']} {row['shape']}"]
    cells += [f"{name} {value}" for name, value in row["options"].items()]
    for name in SIDES:
        side = row.get(name, {})
        if "us" in side:
            by = f" ({side['fastest']})" if "fastest" in side else ""
            cells.append(f"{name} {side['us']:.1f} µs{by}")
        elif "refused" in side:
            cells.append(f"{name} {side['refused']}")
    for name in SIDES:
        if f"{name}_ratio" in row:
            cells.append(f"{row[f'{name}_ratio']:.2f} × {name}")
    rated = row if "of_copy" in row else row.get("fp16", {})
    if "of_copy" in rated:
        rate = f"{rated['bytes_per_s'] / 1e9:.0f} GB/s"
        cells.append(f"{rate}, {rated['of_copy']:.0%} of a copy")
    for name in ("goal", "predicted", "paper"):
        if row.get(f"{name}_us"):
            cells.append(f"{name} {row[f'{name}_us']:g} µs")
    return "; ".join(cells)


def concerned(chosen: list[Operation], steps: list[str]) -> list[str]:
    """Return the kernels of some operations, all of them where bits are compared."""
    names = {word for one in chosen if one.kernel for word in one.name.split(" + ")}
    return [name for name in kernels.LAUNCHERS if name in names or "bits" in steps]


def run(clock: Clock, steps: list[str], file: Path | None, only: str = "") -> list[Named]:
    """Measure the operations of some steps, print each row and write it down; agreement first.

    `only` those whose name and shape, as printed, hold a text.
    """
    chosen = [
        one
        for one in operations(clock.dry)
        if one.step in steps and only in f"{one.name} {one.shape}"
    ]
    agree(concerned(chosen, steps), str(clock.device))
    bandwidth = copying(clock)
    where, rows = about(clock, bandwidth), list[Named]()
    print(", ".join(f"{name} {value}" for name, value in where.items()), flush=True)
    predictions = json.loads(PREDICTED.read_text())["rows"]

    def add(row: Named) -> None:
        rows.append(row)
        print(line(row), flush=True)
        if file is not None:
            record(file, dict(about=where, rows=rows))

    for one in chosen:
        add(measured(clock, one, bandwidth, predictions))
        if not clock.dry:
            torch.cuda.empty_cache()
    if "bits" in steps:
        for row in compared(outputs(clock.device), interpreted()):
            add(row)
    return rows


def arguments(words: list[str]) -> argparse.Namespace:
    """Return what the command line asks for."""
    steps = (*STEPS, "bits")
    parser = argparse.ArgumentParser(prog="python -m optimized.bench cuda", description=__doc__)
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"of {', '.join(steps)}")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows that hold it: HEX-4")
    parser.add_argument("--dry-run", action="store_true", help="small shapes on a CPU")
    parser.add_argument("--json", type=Path, metavar="FILE", help=f"in place of {MEASURED.name}")
    parser.add_argument("--outputs", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if unknown := [step for step in given.steps if step not in steps]:
        parser.error(f"no such step: {', '.join(unknown)}; there are {', '.join(steps)}")
    if given.dry_run and given.json and given.json.resolve() == MEASURED:
        parser.error(f"nothing of a dry run is measured: {MEASURED.name} is not for it")
    if not (given.dry_run or given.outputs or torch.cuda.is_available()):
        parser.error("there is no GPU here; --dry-run tries the command on a CPU")
    given.steps = given.steps or list(steps)
    return given


def main(words: list[str]) -> None:
    """Check agreement, measure, print and write."""
    given = arguments(words)
    dry = given.dry_run or given.outputs
    if dry and os.environ.get("TRITON_INTERPRET") != "1":
        sys.exit(again(words))
    if given.outputs:
        torch.save(outputs(torch.device("cpu")), given.outputs)
        return
    device = torch.device("cpu" if dry else "cuda")
    clock = DryClock(device) if dry else Clock(device)
    rows = run(clock, given.steps, given.json or (None if dry else MEASURED), given.only)
    if failed := [line(row) for row in rows if "refused" in row.get("kernel", {})]:
        sys.exit("\n".join(["kernels that failed:", *failed]))
