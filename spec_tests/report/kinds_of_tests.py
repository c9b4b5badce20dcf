"""The kinds of tests that exist for each function, and whether they were run."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from spec_tests.functions_called_by_tests import (
    calls_by_name,
    functions_called_in,
    functions_of_test,
)
from spec_tests.implementation import Implementation, under_test
from spec_tests.index import HERE

VECTORS, LAWS = "vectors", "laws"
KINDS = {
    "test_agreement.py": "agreement",
    "test_requires_grad.py": "common laws",
    "test_vectors.py": VECTORS,
    "test_generated.py": VECTORS,
    "test_errors.py": "errors",
}
"""The kind of the tests of a file; all other files hold laws."""
ORDER = (VECTORS, LAWS, "common laws", "agreement", "errors")
"""The order in which the tests of a named module run: the easiest to read come first."""
OF_LEVEL = {"values": ORDER[:-1], "edges": ORDER[:-1], "errors": ORDER[-1:]}
OURS = ("internal", "kernels")
"""Folders of tests of this repository."""
NEEDS = "needs "
Tests = Counter[tuple[str, str, str]]
"""Numbers of tests of a module, by function and kind; those of laws that were not asked by equation
and `NEEDS` with the functions that the module lacks."""


def kind_of(file: Path) -> str:
    """Return the kind of the tests of a file."""
    return KINDS.get(file.name, LAWS) if file.parent == HERE else LAWS


def count_tests_by_function_and_kind(
    collected: Iterable[pytest.Item],
    items: Iterable[pytest.Item],
    impls: Iterable[Implementation],
    level: str,
) -> Tests:
    """Return the number of tests by module, function and kind.

    It counts the `items` of the run, and one test for each file of which nothing was `collected`:
    the paths on the command line left these files out.
    """
    found: Tests = Counter()
    for item in items:
        if isinstance(item, pytest.Function) and (impl := under_test(item)) is not None:
            found.update((impl.name, name, kind_of(item.path)) for name in functions_of_test(item))
    seen = {item.path for item in collected}
    for file in (file for file in HERE.rglob("test_*.py") if file not in seen):
        if file.relative_to(HERE).parts[0] not in OURS:
            for impl in impls:
                offered = impl.judged - impl.lacks
                names = offered if calls_by_name(file) else offered & functions_called_in(file)
                found.update((impl.name, name, kind_of(file)) for name in names)
    return Counter({of: n for of, n in found.items() if of[2] != "errors" or level == "errors"})


def run_state_by_kind(existing: Tests, ran: Tests, module: str, name: str) -> dict[str, str]:
    """Return, for each kind of test of a function, whether they were run, in part or not."""
    found = {}
    for kind in ORDER:
        of = module, name, kind
        if number := max(existing[of], ran[of]):
            found[kind] = "run" if ran[of] == number else "in part" if ran[of] else "not run"
    return found
