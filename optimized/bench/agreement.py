"""The agreement tests, which come before any figure."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path


def pytest(*words: str) -> int:
    """Run pytest in a process of its own; return how it ended."""
    return subprocess.run([sys.executable, "-m", "pytest", *words], check=False).returncode


def agree(functions: list[str], device: str) -> None:
    """Run the agreement tests of functions; stop if one fails."""
    if not functions:
        return
    suite = find_spec("spec_tests")
    assert suite is not None
    assert suite.origin is not None
    file = Path(suite.origin).with_name("test_agreement.py")
    chosen = ("-k", " or ".join(functions), "--impl", "optimized", "--device", device)
    if failed := pytest(str(file), "-q", "-p", "no:cacheprovider", *chosen):
        sys.exit(failed)
