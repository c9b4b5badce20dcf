"""`python -m spec_tests some.module` runs the conformance suite from anywhere.

A module of exercises is marked in their order: see `spec_tests/exercises.py`.
"""

import gc
import re
import sys
from argparse import ArgumentParser
from importlib.util import find_spec
from pathlib import Path

from spec_tests.options import OPTIONS

NEEDED = ("pytest", "hypothesis", "beartype")
TAKES_VALUE = {name for name, how in OPTIONS.items() if how.get("action") != "store_true"}
TAKES_VALUE |= {"--hypothesis-profile", "-k", "-m", "-n", "-p", "-c", "-W"}


def file_of_exercises(word: str) -> Path | None:
    """Return the file in the current folder that a word names, if it declares exercises."""
    file = Path(f"{word.removesuffix('.py')}.py")
    declares = file.is_file() and re.search(r"^exercises\b", file.read_text(), re.MULTILINE)
    return file if declares else None


def pytest_arguments(given: list[str]) -> list[str]:
    """Return pytest's arguments: a bare word becomes `--impl WORD`, others stay as they are."""
    out = [str(Path(__file__).parent), "-p", "no:cacheprovider", "--import-mode=importlib"]
    out += ["-p", "no:benchmark"]  # it would create a folder .benchmarks
    out += [] if any(word.startswith("-v") for word in given) else ["-q"]
    expects_value = False
    for word in given:
        if word.startswith("-") or expects_value:
            out.append(word)
        else:
            out += ["--impl", word]
        expects_value = word in TAKES_VALUE
    return out


if __name__ == "__main__":
    if {"-h", "--help"} & {*sys.argv}:
        parser = ArgumentParser(
            usage="python -m spec_tests [MODULE ...] [OPTION ...]",
            description=__doc__,
            epilog="All other options are pytest's: `pytest --help` lists them.",
        )
        for option, how in OPTIONS.items():
            parser.add_argument(option, **how)
        sys.exit(parser.print_help())
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        sys.exit(f"The suite needs {', '.join(missing)}: pip install 'kvspec[test]'")
    if len(sys.argv) == 2 and (exercises := file_of_exercises(sys.argv[1])):
        gc.disable()  # a collection reads all objects of PyTorch, and a marking takes little memory
        from spec_tests.exercises import mark_file

        sys.exit(mark_file(exercises))
    import pytest

    sys.exit(pytest.main(pytest_arguments(sys.argv[1:])))
