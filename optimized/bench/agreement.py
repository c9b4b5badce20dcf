"""The agreement tests, which run before any timing."""

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree


def run_pytest(*words: str) -> int:
    """Run pytest in a separate process; return its exit code."""
    return subprocess.run([sys.executable, "-m", "pytest", *words], check=False).returncode


def agreement(functions: list[str], device: str, *words: str) -> int:
    """Run the agreement tests of functions; return the exit code."""
    suite = find_spec("spec_tests")
    assert suite is not None
    assert suite.origin is not None
    file = Path(suite.origin).with_name("test_agreement.py")
    tests = " or ".join(f"[optimized-{name}]" for name in functions)
    chosen = ("-k", tests, "--impl", "optimized", "--device", device)
    chosen += ("-p", "no:benchmark")  # it warns where xdist is active, and a warning is an error
    return run_pytest(str(file), "-q", "-p", "no:cacheprovider", *chosen, *words)


def check_agreement(functions: list[str], device: str, *words: str) -> None:
    """Run the agreement tests of functions; exit if one fails."""
    if functions and (failed := agreement(functions, device, *words)):
        sys.exit(failed)


def disagreeing(functions: list[str], device: str) -> set[str]:
    """Run the agreement tests of functions on all cores; return the functions that fail.

    An illegal memory access of one kernel makes all later tests of the process fail. So each
    function that fails among others is tested again in a separate process.
    """
    cores = ("-n", "logical") if len(functions) > 1 and find_spec("xdist") else ()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "tests.xml")
        if not functions or not agreement(functions, device, *cores, f"--junitxml={file}"):
            return set()
        named = failing(file) & {*functions} if file.exists() else set[str]()
    failed = named or {*functions}  # if no failing test names a function, all are suspect
    return failed if len(functions) == 1 else {x for x in failed if disagreeing([x], device)}


def failing(file: Path) -> set[str]:
    """Return the functions whose tests failed, from pytest's XML report."""
    cases = ElementTree.parse(file).iter("testcase")
    bad = [
        case.get("name", "") for case in cases if {part.tag for part in case} & {"failure", "error"}
    ]
    return {name.partition("[")[2].removesuffix("]").rpartition("-")[2] for name in bad}
