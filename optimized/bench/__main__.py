"""`python -m optimized.bench NAME [NAME ...]`: agreement first, then the figures.

`python -m optimized.bench aot` is the exception: it compiles every kernel, and times none.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import torch

from optimized.bench import report

HERE = Path(__file__).parent
NAMES = sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))


def arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m optimized.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--write", action="store_true", help="write docs/performance.csv")
    on_gpu = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=on_gpu, help="where the inputs live")
    threads = "on a busy machine 1 is fair to both sides: waiting for a second one is not work"
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help=threads)
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in NAMES]:
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    return given


def pytest(*words: str) -> int:
    """Run pytest in a process of its own; return how it ended."""
    return subprocess.run([sys.executable, "-m", "pytest", *words], check=False).returncode


def agree(names: list[str], device: str) -> None:
    """Run the agreement tests of every function concerned; stop if one fails."""
    modules = [import_module(f"optimized.bench.bench_{name}") for name in names]
    functions = sorted({function for module in modules for function in module.FUNCTIONS})
    suite = find_spec("spec_tests")
    assert suite is not None
    assert suite.origin is not None
    file = Path(suite.origin).with_name("test_agreement.py")
    chosen = ("-k", " or ".join(functions), "--impl", "optimized", "--device", device)
    if failed := pytest(str(file), "-q", "-p", "no:cacheprovider", *chosen):
        sys.exit(failed)


def times(name: str, device: str, threads: int) -> list[report.Line]:
    """Run one benchmark file and return its lines; stop if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "timings.json")
        options = (f"--benchmark-json={out}", "--benchmark-quiet")
        options += (f"--bench-device={device}", f"--bench-threads={threads}")
        file = str(HERE / f"bench_{name}.py")
        if failed := pytest(file, "-q", "-p", "no:cacheprovider", *options):
            sys.exit(failed)
        return report.lines(name, json.loads(out.read_text())["benchmarks"], device, threads)


def main() -> None:
    """Check, time, print, and write if asked to."""
    if sys.argv[1:] == ["aot"]:
        import_module("optimized.bench.aot").main()
    given = arguments()
    names = given.names or NAMES
    agree(names, given.device)
    found = [line for name in names for line in times(name, given.device, given.threads)]
    print(report.table(found))
    if given.write:
        report.write(found)


if __name__ == "__main__":
    main()
