"""The tests of agreement, which the suite runs as a program before any timing."""

import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree


def failing_tests(chosen: str, *words: str) -> list[str]:
    """Run the suite's tests of `optimized` that `-k` chooses; return the names of those that fail.

    Raises:
        SystemExit: the suite ends before its tests, or chooses none.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "tests.xml")
        command = [sys.executable, "-m", "spec_tests", "optimized", "-k", chosen]
        code = subprocess.run([*command, f"--junitxml={file}", *words], check=False).returncode
        if code > 1 or not file.exists():
            sys.exit(code)
        cases = ElementTree.parse(file).iter("testcase")
        return [
            case.get("name", "")
            for case in cases
            if {part.tag for part in case} & {"failure", "error"}
        ]


def check_agreement(functions: list[str]) -> None:
    """Run a few examples of the agreement tests of functions; exit if one fails."""
    names = " or ".join(f"[optimized-{name}]" for name in functions)
    if functions and failing_tests(f"test_agreement and ({names})", "--examples", "5"):
        sys.exit(1)
