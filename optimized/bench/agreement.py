"""The tests of agreement, which the suite runs as a program before any timing."""

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

OPTIONS = ("-q", "-p", "no:cacheprovider", "-p", "no:benchmark", "--import-mode=importlib")


def failing_tests(functions: list[str], *words: str, timed: bool = False) -> list[str]:
    """Run the agreement tests of functions; return the names of those that fail.

    With `timed`, those of the operations that are timed on a GPU run, too. Further words go to
    pytest.

    Raises:
        SystemExit: the suite ends before its tests, or has none.
    """
    suite = find_spec("spec_tests")
    assert suite is not None
    assert suite.origin is not None
    names = ["test_agreement.py", *["kernels/test_timed_operations.py"] * timed]
    files = [str(Path(suite.origin).parent / name) for name in names]
    chosen = " or ".join(["test_timed_operations", *(f"[optimized-{x}]" for x in functions)])
    command = [sys.executable, "-m", "pytest", *OPTIONS, *files, "-k", chosen, *words]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "tests.xml")
        code = subprocess.run([*command, f"--junitxml={file}"], check=False).returncode
        if code > 1 or not file.exists():
            sys.exit(code)
        cases = ElementTree.parse(file).iter("testcase")
        return [
            case.get("name", "")
            for case in cases
            if {part.tag for part in case} & {"failure", "error"}
        ]
