"""The agreement tests, which come before any figure."""

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree


def pytest(*words: str) -> int:
    """Run pytest in a process of its own; return how it ended."""
    return subprocess.run([sys.executable, "-m", "pytest", *words], check=False).returncode


def agreement(functions: list[str], device: str, *words: str) -> int:
    """Run the agreement tests of functions; return how they ended."""
    suite = find_spec("spec_tests")
    assert suite is not None
    assert suite.origin is not None
    file = Path(suite.origin).with_name("test_agreement.py")
    tests = " or ".join(f"[optimized-{name}]" for name in functions)
    chosen = ("-k", tests, "--impl", "optimized", "--device", device)
    return pytest(str(file), "-q", "-p", "no:cacheprovider", *chosen, *words)


def agree(functions: list[str], device: str) -> None:
    """Run the agreement tests of functions; stop if one fails."""
    if functions and (failed := agreement(functions, device)):
        sys.exit(failed)


def disagreeing(functions: list[str], device: str) -> set[str]:
    """Run the agreement tests of functions, on all cores; return those of which one fails.

    A kernel that reads what is not there takes the GPU from all tests after it: what fails among
    others is asked once more in a process of its own.
    """
    cores = ("-n", "logical") if len(functions) > 1 and find_spec("xdist") else ()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "tests.xml")
        if not functions or not agreement(functions, device, *cores, f"--junitxml={file}"):
            return set()
        told = failing(file) & {*functions} if file.exists() else set[str]()
    failed = told or {*functions}  # where no test tells which, none is known to agree
    return failed if len(functions) == 1 else {x for x in failed if disagreeing([x], device)}


def failing(file: Path) -> set[str]:
    """Return the functions whose tests failed, by a report of pytest's."""
    cases = ElementTree.parse(file).iter("testcase")
    bad = [
        case.get("name", "") for case in cases if {part.tag for part in case} & {"failure", "error"}
    ]
    return {name.partition("[")[2].removesuffix("]").rpartition("-")[2] for name in bad}
