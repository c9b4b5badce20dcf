"""`python -m optimized.bench NAME [NAME ...]`: run agreement tests, then time.

Four names are separate commands: `aot` compiles every kernel and times none; `cuda` times all of
them on a GPU; `straightforward` and `library` measure ratios to the plain way and to kvpress.
"""

import argparse
import json
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

import reference
from optimized.bench import report
from optimized.bench.agreement import check_agreement, run_pytest
from optimized.bench.timing_harness import Timing

HERE = Path(__file__).parent
NAMES = sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))


def arguments() -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(prog="python -m optimized.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--write", action="store_true", help="write docs/performance.csv")
    on_gpu = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=on_gpu, help="the device of the inputs")
    threads = "threads of PyTorch; on a busy machine 1 is fair: no side waits for a second thread"
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help=threads)
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in NAMES]:
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    return given


def timings(name: str, device: str, threads: int) -> list[Timing]:
    """Time the cases of a benchmark by pytest-benchmark, in order; exit if one fails."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "timings.json")
        options = (f"--benchmark-json={out}", "--benchmark-quiet", f"--bench={name}")
        options += (f"--bench-device={device}", f"--bench-threads={threads}")
        file = str(HERE / "test_time_case.py")
        if failed := run_pytest(file, "-q", "-p", "no:cacheprovider", *options):
            sys.exit(failed)
        timed = json.loads(out.read_text())["benchmarks"]
    sides: dict[tuple[int, str], Any] = {
        (one["extra_info"]["at"], one["extra_info"]["side"]): one for one in timed
    }
    return [
        Timing(
            sides[at, "slow"]["stats"]["median"],
            sides[at, "fast"]["stats"]["median"],
            sides[at, "fast"]["extra_info"]["first"],
        )
        for at in range(len(timed) // 2)
    ]


def main() -> None:
    """Test agreement, time, print, and with `--write` write the table."""
    if sys.argv[1:2] == ["aot"]:
        import_module("optimized.bench.aot").main(sys.argv[2:])
    if sys.argv[1:2] == ["cuda"]:
        return import_module("optimized.bench.gpu_benchmarks").main(sys.argv[2:])
    if sys.argv[1:2] in (["straightforward"], ["library"]):
        return import_module("optimized.bench.ratios").main(sys.argv[1:])
    given = arguments()
    modules = {
        name: import_module(f"optimized.bench.bench_{name}") for name in given.names or NAMES
    }
    also = {function for one in modules.values() for function in getattr(one, "ALSO", ())}
    named = {word for one in modules.values() for case in one.CASES for word in case.name.split()}
    check_agreement(sorted(also | named & {*reference.__all__}), given.device)
    where = report.surroundings(given.device, given.threads)
    found = [
        report.line(name, case, timing, where)
        for name, one in modules.items()
        for case, timing in zip(one.CASES, timings(name, given.device, given.threads), strict=True)
    ]
    print(report.report_text(found))
    if given.write:
        report.update_csv(found)


if __name__ == "__main__":
    main()
