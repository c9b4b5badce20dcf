"""`python -m spec_tests some.module` runs the conformance suite from anywhere.

A module of exercises is marked in their order: see `spec_tests/exercises.py`.
"""

import re
import sys
from importlib.util import find_spec
from pathlib import Path

NEEDED = ("pytest", "hypothesis", "beartype")


def file_of_exercises(word: str) -> Path | None:
    """Return the file in the current folder that a word names, if it declares exercises."""
    file = Path(f"{word.removesuffix('.py')}.py")
    declares = file.is_file() and re.search(r"^exercises\b", file.read_text(), re.MULTILINE)
    return file if declares else None


if __name__ == "__main__":
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        sys.exit(f"The suite needs {', '.join(missing)}: pip install 'kvspec[test]'")
    if len(sys.argv) == 2 and (exercises := file_of_exercises(sys.argv[1])):
        from spec_tests.exercises import mark_file

        sys.exit(mark_file(exercises))
    import pytest

    from spec_tests.command_line import pytest_arguments

    sys.exit(pytest.main(pytest_arguments(sys.argv[1:])))
