"""Find the public functions that a test calls, in its source before it runs.

The names are needed before the run: tests of a function that a module lacks are not collected, and
a card says of how many tests it tells. `impl.smd` in a test, its helpers or its fixtures is a call.
"""

import ast
from functools import cache, partial
from pathlib import Path

import pytest

import reference

ROOT = Path(__file__).parent.parent
PUBLIC = frozenset(reference.__all__)
Body = tuple[frozenset[str], set[tuple[Path, str]]]
"""The public functions that a body calls on `impl`, and its other names: possibly of helpers."""


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
        place = waiting.pop()
        if place not in seen and (here := names_by_function(place[0]).get(place[1])):
            found |= here[0]
            waiting += here[1]
        seen.add(place)
    return frozenset(found)


def functions_called_in(file: Path) -> frozenset[str]:
    """Return the public names that a file, with the helpers it uses, calls on `impl`."""
    return functions_called_by(file, "")


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
    for name, nodes in (parts | {"": [tree]}).items():
        inner = [node for part in nodes for node in ast.walk(part)]
        attributes = [node for node in inner if isinstance(node, ast.Attribute)]
        names = {node.attr for node in attributes if getattr(node.value, "id", "") == "impl"}
        words = {node.id for node in inner if isinstance(node, ast.Name)}
        words |= {node.arg for node in inner if isinstance(node, ast.arg)}
        found[name] = PUBLIC & names, {elsewhere.get(w, (file, w)) for w in words}
    return found
