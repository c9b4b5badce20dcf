"""Find the public functions that a test calls, in its source before it runs.

The names are needed before the run: tests of a function that a module lacks are not collected, and
a card says of how many tests it tells. `impl.smd` in a test, its helpers or its fixtures is a call.
"""

import ast
import re
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import pytest

import reference

ROOT = Path(__file__).parent.parent
PUBLIC = frozenset(reference.__all__)
ASKS = re.compile(r"\bimpl\.(\w+)")
IMPORTS = re.compile(r"^from (spec_tests\.[\w.]+) import", re.MULTILINE)


class NamesInBody(NamedTuple):
    """The names in the body of a function of a test file."""

    names: frozenset[str]  # public functions that it calls on `impl`
    functions: frozenset[tuple[Path, str]]  # other names, possibly of helpers and fixtures


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


def may_call_any(file: Path, offered: frozenset[str]) -> bool:
    """Whether a test of a file may call an offered name: a fast check of the file's text."""
    by_name = "getattr(impl" in text(file) or "SCORED" in text(file)
    return by_name or bool(functions_in_text(file) & offered)


@cache
def functions_in_text(file: Path) -> frozenset[str]:
    """Return the public names called on `impl` in a file or in files of the suite it imports."""
    found, waiting = set[Path](), [file]
    while waiting:
        here = waiting.pop()
        if here not in found:
            found.add(here)
            waiting += [file_of(module) for module in IMPORTS.findall(text(here))]
    return PUBLIC & {name for place in found for name in ASKS.findall(text(place))}


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
        place = waiting.pop()
        if place not in seen and (here := names_by_function(place[0]).get(place[1])):
            found |= here.names
            waiting += here.functions
        seen.add(place)
    return frozenset(found)


@cache
def names_by_function(file: Path) -> dict[str, NamesInBody]:
    """Return the names in the body of each function of a file, without those in decorators."""
    tree, elsewhere, found = ast.parse(text(file)), dict[str, tuple[Path, str]](), {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("spec_tests."):
            home = file_of(str(node.module))
            elsewhere |= {alias.asname or alias.name: (home, alias.name) for alias in node.names}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            inner = [n for part in (node.args, *node.body) for n in ast.walk(part)]
            attributes = [n for n in inner if isinstance(n, ast.Attribute)]
            names = {n.attr for n in attributes if getattr(n.value, "id", "") == "impl"}
            words = {n.id for n in inner if isinstance(n, ast.Name)}
            words |= {n.arg for n in inner if isinstance(n, ast.arg)}
            places = frozenset(elsewhere.get(word, (file, word)) for word in words)
            found[node.name] = NamesInBody(PUBLIC & names, places)
    return found
