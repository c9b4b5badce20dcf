"""Find the public functions that a test calls, in its source before it runs, and count the tests.

The names are needed before the run: tests of a function that a module lacks are not collected, and
a card says of how many tests it tells. `impl.smd` in a test, its helpers or its fixtures is a call.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Set
from functools import cache, partial
from pathlib import Path

import pytest

import reference
from spec_tests.implementation import Implementation, under_test
from spec_tests.index import HERE, ROOT

PUBLIC = frozenset(reference.__all__)
Body = tuple[frozenset[str], set[tuple[Path, str]]]
"""The public functions that a body calls on `impl`, and its other names: possibly of helpers."""
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


def functions_of_test(item: pytest.Function) -> frozenset[str]:
    """Return the public names that a test calls, in its source or through its parameters."""
    found = functions_called_by(item.path, item.originalname)
    for value in item.callspec.params.values() if hasattr(item, "callspec") else ():
        code = getattr(value, "__code__", None)
        if code and "impl" in code.co_varnames:
            found |= PUBLIC & set(code.co_names)
        if isinstance(value, partial):
            found |= PUBLIC & set(value.args)
        words = value if isinstance(value, tuple) else (value,)
        found |= PUBLIC & {word for word in words if isinstance(word, str)}
    return found


@cache
def calls_by_name(file: Path) -> bool:
    """Whether tests of a file may call any function, by its name in a parameter."""
    return "getattr(impl" in text(file) or "SCORED" in text(file)


def file_of(module: str) -> Path:
    """Return the file of a module of the suite."""
    return ROOT.joinpath(*module.split(".")).with_suffix(".py")


@cache
def text(file: Path) -> str:
    """Return the text of a file, or "" if there is none: a package holds no tests."""
    return file.read_text() if file.exists() else ""


@cache
def functions_called_by(file: Path, test: str) -> frozenset[str]:
    """Return the names that a test, its helpers and its fixtures call on `impl`."""
    seen, waiting, found = set[tuple[Path, str]](), [(file, test)], set[str]()
    while waiting:
        body = waiting.pop()
        if body not in seen and (names := names_by_function(body[0]).get(body[1])):
            found |= names[0]
            waiting += names[1]
        seen.add(body)
    return frozenset(found)


def functions_called_in(file: Path, asked: Set[str]) -> Set[str]:
    """Return which of the public names a file, with the helpers it uses, calls on `impl`."""
    return asked & functions_called_by(file, "") if asked & names_in_text(file) else set()


@cache
def names_in_text(file: Path) -> frozenset[str]:
    """Return the names behind `impl.` in a file and in those it imports: faster than its tree."""
    found = frozenset(re.findall(r"\bimpl\.(\w+)", text(file)))
    homes = re.findall(r"^from (spec_tests\.\S+) import", text(file), re.MULTILINE)
    return found.union(*(names_in_text(file_of(home)) for home in homes))


@cache
def names_by_function(file: Path) -> dict[str, Body]:
    """Return the names in the body of each function of a file, and in the whole file under ""."""
    tree, elsewhere, found = ast.parse(text(file)), dict[str, tuple[Path, str]](), {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("spec_tests."):
            home = file_of(str(node.module))
            elsewhere |= {alias.asname or alias.name: (home, alias.name) for alias in node.names}
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    parts = {node.name: [node.args, *node.body] for node in functions}  # without decorators
    rest = [node for node in tree.body if node not in functions]
    rest += [decorator for node in functions for decorator in node.decorator_list]
    for name, nodes in (parts | {"": rest}).items():
        inner = [node for part in nodes for node in ast.walk(part)]
        attributes = [node for node in inner if isinstance(node, ast.Attribute)]
        names = {node.attr for node in attributes if getattr(node.value, "id", "") == "impl"}
        words = {node.id for node in inner if isinstance(node, ast.Name)}
        words |= {node.arg for node in inner if isinstance(node, ast.arg)}
        found[name] = PUBLIC & names, {elsewhere.get(w, (file, w)) for w in words}
    called, others = zip(*found.values(), strict=True)
    return found | {"": (frozenset().union(*called), set().union(*others))}


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
                names = offered if calls_by_name(file) else functions_called_in(file, offered)
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
