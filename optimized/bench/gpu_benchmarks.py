"""`python -m optimized.bench cuda`: test agreement on the GPU, then time the kernels.

Every figure is a median of runs between two CUDA events, 50 runs of a kernel. Each run has newly
drawn inputs and follows a pass over more memory than the L2 cache holds. `--dry-run` runs small
shapes once on a CPU, in Triton's interpreter; it shows only that the command works. Measurements on
a GPU go to docs/measured.json row by row, so the next run of the same code resumes a run that was
interrupted, or that reached its limit of seconds. Before a kernel is timed, it must launch and
agree with the reference at the timed width, dtype and options (`kernel_gate`).
"""

import argparse
import gc
import hashlib
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from importlib import import_module
from itertools import chain
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from optimized import kernels
from optimized._atomic_files import write_atomically
from optimized.bench.agreement import disagreeing
from optimized.bench.kernel_gate import Failed, check_admits, check_gate, counted, gate_of
from optimized.bench.operations import (
    STEPS,
    Named,
    Operation,
    OperationInputs,
    moved,
    operations,
    override_launch_options,
)
from optimized.bench.report import MEASURED, ROOT, surroundings
from optimized.hex_packed_layout import PackedCache
from reference.contract.enforce import trusted

SCHEMA = 1
"""Version of the schema of docs/measured.json."""

SIDES = ("kernel", "graph", "eager", "fp16")
BUDGET = 480.0
"""Seconds after which no further row begins."""

VALUE = (
    ("decode", "-4"),
    ("select", ""),
    ("pack", "hex_compress"),
    ("mass", ""),
    ("graph", ""),
    ("evict", ""),
    ("pack", ""),
    ("decode", ""),
    ("fp16", ""),
)
"""Steps, and texts of their rows, in the order of measurement; the rest comes last."""

RUNS, SECONDS = 50, 3.0
"""Runs of a kernel, and seconds of a slow eager side, which runs at least 5 times."""


DISAGREES = "does not agree with the reference"


class Lost(Exception):
    """A CUDA error has made the GPU unusable for this process."""


class Clock:
    """Times calls on a GPU by CUDA events."""

    dry = False
    amiss = False

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.gates: dict[str, Counter[str]] = {}  # launches of the gates that have passed
        cached = torch.cuda.get_device_properties(device).L2_cache_size
        self.flushed = torch.empty(4 * cached, dtype=torch.int8, device=device)

    def once(self, call: Callable[[], object]) -> float:
        """Return the seconds of one call, in wall-clock time."""
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        return time.perf_counter() - start

    def each(
        self, call: Callable[[], object], fresh: Callable[[int], None], runs: int
    ) -> list[float]:
        """Return the seconds of each of several calls, with inputs drawn by `fresh`."""
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
        """Return a function that replays a call as a CUDA graph."""
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
        try:
            with torch.cuda.graph(recorded):
                call()
        except Exception:
            self.amiss = True
            raise
        return recorded.replay

    def lost(self) -> bool:
        """Whether the GPU is unusable for this process, as after an illegal memory access."""
        try:
            torch.cuda.synchronize()
        except Exception:
            self.amiss = True
        return self.amiss

    def forget(self) -> None:
        """Free the memory of a row."""
        gc.collect()
        if not self.lost():
            torch.cuda.empty_cache()


class DryClock(Clock):
    """Times calls on a CPU, without CUDA events or graphs."""

    dry = True

    def __init__(self, device: torch.device) -> None:
        self.device, self.flushed = device, torch.empty(2**16, dtype=torch.int8)
        self.gates = {}

    def once(self, call: Callable[[], object]) -> float:  # noqa: ARG002
        """Return 0 without calling; `each` makes the only call."""
        return 0.0

    def each(
        self, call: Callable[[], object], fresh: Callable[[int], None], runs: int
    ) -> list[float]:
        """Return the seconds of one call, for any number of runs."""
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

    def lost(self) -> bool:
        """Return False."""
        return False

    def forget(self) -> None:
        """Do nothing."""


def tensors(value: object) -> Iterator[Tensor]:
    """Yield the tensors inside a value."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        yield from chain.from_iterable(map(tensors, value))
    elif isinstance(value, dict):
        yield from chain.from_iterable(map(tensors, value.values()))


def tensor_bytes(value: object) -> int:
    """Return the bytes of the tensors inside a value, counting each storage once."""
    storages = (tensor.untyped_storage() for tensor in tensors(value))
    return sum({one.data_ptr(): one.nbytes() for one in storages}.values())


def redraw(inputs: OperationInputs, seed: int) -> None:
    """Redraw every float and every word of codes in place; masks, positions and lengths stay.

    Queries, keys and values lie in [-1, 1), scores and the numbers of a compressed cache in [0, 1);
    the largest step of a packed cache is 1.
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
            if isinstance(value, PackedCache):
                value.spans.reach.fill_(1)


def time_side(
    clock: Clock, call: Callable[[], object], inputs: OperationInputs, runs: int | None
) -> Named:
    """Return the median time of a side, or why it failed; by default at most `RUNS` runs."""
    try:
        first = clock.once(call)
        for _ in range(2 * (not clock.dry)):
            again = clock.once(call)
            runs = runs or max(5, min(RUNS, int(SECONDS / again)))
        seconds = clock.each(call, lambda seed: redraw(inputs, seed), runs or RUNS)
    except Exception as reason:  # such as a missing package, or unsupported shapes
        return refused(reason)
    return dict(us=1e6 * median(seconds), runs=len(seconds), first_ms=1e3 * first)


def time_graph(
    clock: Clock, call: Callable[[], object], inputs: OperationInputs, runs: int | None
) -> Named:
    """Return the median time of a side as a CUDA graph, or why it failed."""
    try:
        return time_side(clock, clock.captured(call), inputs, runs)
    except Exception as reason:  # a call that synchronises cannot be captured
        return refused(reason)


def refused(reason: Exception) -> Named:
    """Return the record of a side that failed."""
    return dict(refused=f"{type(reason).__name__}: {reason}".splitlines()[0][:200])


def copying(clock: Clock) -> float:
    """Return the bandwidth of a copy: bytes read and written a second."""
    source = torch.empty(2**16 if clock.dry else 2**30, dtype=torch.uint8, device=clock.device)
    target = torch.empty_like(source.random_(0, 256))
    seconds = clock.each(lambda: target.copy_(source), lambda _: None, RUNS)
    return 2 * source.nbytes / median(seconds)


def measured(clock: Clock, one: Operation, bandwidth: float) -> Named:
    """Measure all sides of an operation; return its row."""
    row = about_row(one, copy_bytes_per_s=bandwidth)
    inputs = one.inputs(clock.device)
    if one.kernel is not None:
        row["launches"] = admitted(clock, one, inputs)
    with trusted(), override_launch_options(one.options) if one.options else nullcontext():
        if one.kernel is not None:
            row |= of_kernel(clock, one, inputs, bandwidth)
        if one.eager is not None:
            row["eager"] = time_side(clock, lambda: one.eager(**inputs.eager), inputs, None)  # pyright: ignore[reportOptionalCall]
        if one.rivals:
            row["fp16"] = of_rivals(clock, one, inputs, bandwidth)
    for name in ("eager", "fp16"):
        if "us" in row.get("kernel", {}) and "us" in row.get(name, {}):
            row[f"{name}_ratio"] = row[name]["us"] / row["kernel"]["us"]
    if "us" in row.get("graph", {}) and "us" in row.get("fp16", {}).get("graph", {}):
        row["fp16_graph_ratio"] = row["fp16"]["graph"]["us"] / row["graph"]["us"]
    return row


def admitted(clock: Clock, one: Operation, inputs: OperationInputs) -> dict[str, int]:
    """Return the launches of the timed call, each of whose kernels the gate must have launched.

    Raises:
        Failed: the gate does not admit the operation.
    """
    small = gate_of(one)
    if small.title not in clock.gates:
        clock.gates[small.title] = check_gate(small, clock.device)
    assert one.kernel is not None
    options = override_launch_options(one.options) if one.options else nullcontext()
    with trusted(), options, counted() as launches:
        one.kernel(**inputs.kernel)
    if not launches:
        raise Failed(f"no kernel launches for {one.title}")
    check_admits(clock.gates[small.title], set(launches), one.title)
    return dict(launches)


def about_row(one: Operation, **rest: object) -> Named:
    """Return the identifying fields of a row, and further ones."""
    about = dict(step=one.step, operation=one.name, shape=one.shape, options=dict(one.options))
    return about | rest


def of_kernel(clock: Clock, one: Operation, inputs: OperationInputs, bandwidth: float) -> Named:
    """Return a kernel's time, launched and replayed, and its bandwidth relative to a copy."""

    def call() -> object:
        assert one.kernel is not None
        return one.kernel(**inputs.kernel)

    row: Named = dict(kernel=time_side(clock, call, inputs, RUNS))
    if "us" not in row["kernel"]:
        return row
    moved = tensor_bytes(inputs.kernel) + tensor_bytes(call())
    row["graph"] = time_graph(clock, call, inputs, RUNS)
    least = min(side["us"] for side in row.values() if "us" in side)
    rate = moved / least * 1e6
    return row | dict(bytes=moved, bytes_per_s=rate, of_copy=rate / bandwidth)


def of_rivals(clock: Clock, one: Operation, inputs: OperationInputs, bandwidth: float) -> Named:
    """Return the time of each rival, the fastest one, and the fastest as a CUDA graph."""
    sides: dict[str, Named] = {}
    graphs: dict[str, Named] = {}
    for name, rival in one.rivals.items():

        def call(rival: Callable[..., object] = rival) -> object:
            return rival(**inputs.fp16)

        sides[name] = time_side(clock, call, inputs, None)
        if "us" in sides[name] and not clock.amiss:
            graphs[name] = time_graph(clock, call, inputs, None)
    row: Named = fastest(sides) | dict(graph=fastest(graphs))
    if "us" in row:
        least = min(side["us"] for side in (row, row["graph"]) if "us" in side)
        rate = tensor_bytes(inputs.fp16) / least * 1e6
        row |= dict(bytes_per_s=rate, of_copy=rate / bandwidth)
    return row


def fastest(sides: dict[str, Named]) -> Named:
    """Return all sides and the fastest of those with a time."""
    there = {name: side["us"] for name, side in sides.items() if "us" in side}
    if not there:
        return dict(fastest=None, sides=sides)
    name = min(there, key=there.__getitem__)
    return dict(fastest=name, us=there[name], sides=sides)


def outputs(device: torch.device, only: str = "") -> dict[str, list[Tensor]]:
    """Return the kernels' outputs for small inputs, which are the same on every device."""
    made = {}
    for one in compared_ones(only):
        assert one.kernel is not None
        torch.manual_seed(0)
        inputs = one.inputs(torch.device("cpu"))
        with trusted():
            found = one.kernel(**moved(inputs.kernel, device))
        made[one.title] = [tensor.cpu() for tensor in tensors(found)]
    return made


def compared_ones(only: str) -> list[Operation]:
    """Return the operations whose outputs are compared bit for bit."""
    return [
        one
        for one in operations(True)
        if one.kernel is not None and not one.options and only in one.title
    ]


def interpreted(only: str = "") -> dict[str, list[Tensor]]:
    """Return the outputs for the same inputs in Triton's interpreter, from another process."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "outputs.pt")
        run_interpreted(["--outputs", str(file), "--only", only], check=True)
        return torch.load(file)


def compared(ours: dict[str, list[Tensor]], theirs: dict[str, list[Tensor]]) -> list[Named]:
    """Return, for each kernel, how many numbers differ and the largest difference."""
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


def run_interpreted(words: list[str], check: bool = False) -> int:
    """Run the command in Triton's interpreter, in another process; return its exit code."""
    # numpy warns of overflows, a GPU does not
    there = os.environ | dict(TRITON_INTERPRET="1", PYTHONWARNINGS="ignore::RuntimeWarning")
    return subprocess.run([*command(), *words], env=there, check=check).returncode


def command() -> list[str]:
    """Return the words that run this command in another process."""
    return [sys.executable, "-m", "optimized.bench", "cuda"]


def about(clock: Clock, commit: str = "") -> Named:
    """Return the hardware, versions and code of a run; rows where they are equal form a run."""
    device, torch_version, triton, found, date = surroundings(str(clock.device), 1)
    return dict(
        dry_run=clock.dry,
        device=device,
        python=platform.python_version(),
        torch=torch_version,
        triton=triton,
        cuda=torch.version.cuda,
        commit=commit or found,
        code=code(),
        date=date,
        flushed_bytes=clock.flushed.nbytes,
    )


def code() -> str:
    """Return a hash of the source files, committed or not."""
    files = sorted(
        file for folder in ("optimized", "reference") for file in Path(ROOT, folder).rglob("*.py")
    )
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(ROOT)}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:12]


class Record:
    """A run in its file: the functions that agree, and the rows, each written when measured."""

    def __init__(self, about: Named, file: Path | None) -> None:
        self.about, self.file = about, file
        self.agreed: list[str] = []
        self.rows: list[Named] = []
        there = file is not None and file.exists()
        self.others = json.loads(file.read_text())["runs"] if there else []  # pyright: ignore[reportOptionalMemberAccess]
        same = code_of(about)
        for old in [one for one in self.others if code_of(one["about"]) == same]:
            self.others.remove(old)
            self.agreed, self.rows = old["agreed"], old["rows"]

    def forget(self, some: list[Named]) -> None:
        """Remove all results of agreement tests, and some rows."""
        keys = [key(row) for row in some]
        self.agreed, self.rows = [], [row for row in self.rows if key(row) not in keys]
        self.write()

    def row(self, wanted: Named) -> Named | None:
        """Return the row of an operation, or None."""
        return next((row for row in self.rows if key(row) == key(wanted)), None)

    def add(self, row: Named) -> None:
        """Write a row, replacing an earlier one."""
        self.rows = [one for one in self.rows if key(one) != key(row)] + [row]
        self.write()

    def write(self) -> None:
        """Write the file atomically."""
        if self.file is not None:
            this = dict(about=self.about, agreed=self.agreed, rows=self.rows)
            said = dict(schema_version=SCHEMA, runs=[*self.others, this])
            write_atomically(self.file, json.dumps(said, indent=1) + "\n")


def code_of(about: Named) -> Named:
    """Return the fields that identify a run: all but the commit, which may change other files."""
    return {name: value for name, value in about.items() if name != "commit"}


def key(row: Named) -> Named:
    """Return the fields that identify a row."""
    return {name: row.get(name) for name in ("step", "operation", "shape", "options")}


def failure(row: Named) -> str:
    """Return why a row failed, or an empty text; an eager side out of memory is not a failure."""
    said = [row.get("gate") or row.get("failed"), row.get("kernel", {}).get("refused")]
    eager = row.get("eager", {}).get("refused", "")
    said.append("" if "OutOfMemoryError" in eager else eager)
    if row["step"] == "fp16" and "us" not in row.get("fp16", {}):
        said.append("nothing attends in half precision")
    return next(filter(None, said), "")


def line(row: Named) -> str:
    """Return a row as one line of text."""
    if "failed" in row:
        return "; ".join(
            [f"{row['step']:7} {row['operation']} {row.get('shape', '')}", failure(row)]
        )
    if row["step"] == "bits":
        found = f"{row['differ']} of {row['numbers']} differ, by {row['largest']:.3g} at most"
        return f"bits    {row['operation']}; {found}"
    cells = [f"{row['step']:7} {row['operation']} {row['shape']}"]
    cells += [f"{name} {value}" for name, value in row["options"].items()]
    sides = {name: row.get(name, {}) for name in SIDES}
    sides["fp16 graph"] = sides["fp16"].get("graph", {})
    for name, side in sides.items():
        if "us" in side:
            by = f" ({side['fastest']})" if "fastest" in side else ""
            cells.append(f"{name} {side['us']:.1f} µs{by}")
        elif "refused" in side:
            cells.append(f"{name} {side['refused']}")
    for name in ("eager", "fp16", "fp16_graph"):
        if f"{name}_ratio" in row:
            cells.append(f"{row[f'{name}_ratio']:.2f} × {name.replace('_', ' ')}")
    rated = row if "of_copy" in row else row.get("fp16", {})
    if "of_copy" in rated:
        rate = f"{rated['bytes_per_s'] / 1e9:.0f} GB/s"
        cells.append(f"{rate}, {rated['of_copy']:.0%} of a copy")
    return "; ".join(cells)


def asked(steps: list[str], small: bool, only: str = "") -> list[Operation]:
    """Return the operations of some steps whose titles contain a text, the most valuable first."""
    some = [one for one in operations(small) if one.step in steps and only in one.title]
    return sorted(some, key=place)


def place(one: Operation) -> int:
    """Return the place of an operation in `VALUE`."""
    found = (at for at, (step, text) in enumerate(VALUE) if one.step == step and text in one.title)
    return next(found, len(VALUE))


def launchers_of(some: list[Operation]) -> list[str]:
    """Return the names of the launchers that some operations use."""
    names = {word for one in some if one.kernel for word in one.name.split(" + ")}
    return [name for name in kernels.__all__ if name in names]


def run(
    clock: Clock,
    steps: list[str],
    file: Path | None,
    only: str = "",
    anew: bool = False,
    commit: str = "",
    until: float = math.inf,
) -> list[Named]:
    """Test agreement, then measure the operations of some steps; print and write each row.

    Rows that the file holds for the same code and machine are not measured again, unless `anew`.
    Operations that disagree with the reference are not measured. At the time `until`, as
    `time.monotonic` tells it, no further row begins; those that remain are printed.
    """
    where = about(clock, commit)
    record = Record(where, file)
    print(", ".join(f"{name} {value}" for name, value in where.items()), flush=True)
    some = asked(steps, clock.dry, only)
    bits = compared_ones(only) if "bits" in steps else []
    if anew:
        record.forget([about_row(one) for one in some])
    everything = bits and not only
    names = list(kernels.__all__) if everything else launchers_of(some + bits)
    names = [name for name in names if name not in record.agreed]
    apart = disagreeing(names, str(clock.device))
    record.agreed += [name for name in names if name not in apart]
    record.write()  # also where time is over before the first row
    bandwidth = copying(clock)
    print(f"a copy passes {bandwidth / 1e9:.0f} GB/s", flush=True)
    rows = list[Named]()

    def add(row: Named) -> None:
        rows.append(row)
        print(line(row), flush=True)
        if row.get("failed") != DISAGREES:  # tested again in the next run
            record.add(row)

    left = list[str]()
    for one in some:
        if (known := record.row(about_row(one))) is not None:
            rows.append(known)
            print(f"{line(known)} (on file)", flush=True)
        elif wrong := apart & set(one.name.split(" + ")):
            add(about_row(one, failed=DISAGREES, kernels=sorted(wrong)))
        elif time.monotonic() >= until:
            left.append(one.title)
        else:
            try:
                row = measured(clock, one, bandwidth)
            except Failed as reason:
                row = about_row(one, failed=DISAGREES, gate=str(reason))
            except Exception as reason:
                row = about_row(one, failed=refused(reason)["refused"])
            add(row)
            clock.forget()
            if clock.lost():
                raise Lost
    if bits and time.monotonic() >= until:
        left.append("bits")
    elif bits:
        for row in of_bits(clock, only):
            add(row)
    if left:
        print(f"out of time; the same command goes on with {len(left)} rows:", *left, sep="\n  ")
    return rows


def of_bits(clock: Clock, only: str) -> list[Named]:
    """Return the rows of the bitwise comparison, or one row with the reason of its failure."""
    try:
        return compared(outputs(clock.device, only), interpreted(only))
    except Exception as reason:
        return [dict(step="bits", operation="all", failed=refused(reason)["refused"])]


def arguments(words: list[str]) -> argparse.Namespace:
    """Return the parsed command line."""
    steps: tuple[str, ...] = (*STEPS, "bits")
    parser = argparse.ArgumentParser(prog="python -m optimized.bench cuda", description=__doc__)
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"of {', '.join(steps)}")
    limit = f"begin no row after them (default {BUDGET:.0f}); the next run goes on"
    parser.add_argument("--seconds", type=float, default=BUDGET, help=limit)
    parser.add_argument("--only", default="", metavar="TEXT", help="measure only rows with it")
    parser.add_argument("--anew", action="store_true", help="also measure rows that the file has")
    parser.add_argument("--dry-run", action="store_true", help="small shapes on a CPU")
    parser.add_argument("--json", type=Path, metavar="FILE", help=f"write it, not {MEASURED.name}")
    parser.add_argument("--commit", default="", help="the commit, where git is missing")
    parser.add_argument("--outputs", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if unknown := [step for step in given.steps if step not in steps]:
        parser.error(f"no such step: {', '.join(unknown)}; there are {', '.join(steps)}")
    if given.seconds < 0:
        parser.error(f"--seconds must be at least 0, not {given.seconds:g}")
    if given.dry_run and given.json and given.json.resolve() == MEASURED:
        parser.error(f"--json must not be {MEASURED.name} in a dry run, which measures nothing")
    if not (given.dry_run or given.outputs or torch.cuda.is_available()):
        parser.error("there is no GPU here; use --dry-run to try the command on a CPU")
    given.steps = [*(given.steps or steps)]
    there = asked(given.steps, given.dry_run)
    there += compared_ones("") if "bits" in given.steps else []
    if not any(given.only in one.title for one in there):
        titles = "\n  ".join(dict.fromkeys(one.title for one in there))
        parser.error(f"no row has the text {given.only!r}; there are\n  {titles}")
    return given


def main(words: list[str]) -> None:
    """Test agreement, measure, print and write."""
    given = arguments(words)
    until = time.monotonic() + given.seconds
    dry = given.dry_run or given.outputs
    if dry and os.environ.get("TRITON_INTERPRET") != "1":
        sys.exit(run_interpreted(words))
    if dry:  # the patch is faster, rounds as a GPU does, and refuses reads outside a tensor
        import_module("spec_tests.kernels.interpreter").patch_once()
    if given.outputs:
        torch.save(outputs(torch.device("cpu"), given.only), given.outputs)
        return
    device = torch.device("cpu" if dry else "cuda")
    clock = DryClock(device) if dry else Clock(device)
    file = given.json or (None if dry else MEASURED)
    try:
        rows = run(clock, given.steps, file, given.only, given.anew, given.commit, until)
    except Lost:
        print("this process can no longer use the GPU; a new one continues", flush=True)
        rest = [word for word in words if word != "--anew"]
        rest += ["--seconds", f"{max(0.0, until - time.monotonic()):.0f}"]  # the last one counts
        return os.execv(sys.executable, [*command(), *rest])
    if failed := [line(row) for row in rows if failure(row)]:
        sys.exit("\n".join(["rows that failed:", *failed]))
