"""What a test asks of the module under test, read from its text before it is run."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import reference

ROOT = Path(__file__).parent.parent
PUBLIC = frozenset(reference.__all__)
ASKS = re.compile(r"\bimpl\.(\w+)")
IMPORTS = re.compile(r"^from (spec_tests\.[\w.]+) import", re.MULTILINE)


class Asked(NamedTuple):
    """What a function of a test file says."""

    names: frozenset[str]  # it asks `impl` for
    functions: frozenset[str]  # it mentions


def needs(item: pytest.Function) -> frozenset[str]:
    """Return the public names that a test asks for: its text's, and those of its parameters."""
    found = asked(item.path, item.originalname)
    for value in item.callspec.params.values() if hasattr(item, "callspec") else ():
        code = getattr(value, "__code__", None)
        if code and "impl" in code.co_varnames:
            found |= PUBLIC & set(code.co_names)
        if isinstance(value, str):
            found |= PUBLIC & {value}
    return found


def may_ask(file: Path, offered: frozenset[str]) -> bool:
    """Whether a test of a file may ask for offered names alone; read from its words, in no time."""
    by_name = "getattr(impl" in text(file) or "SCORED" in text(file)
    return by_name or bool(mentioned(file) & offered)


@cache
def mentioned(file: Path) -> frozenset[str]:
    """Return the public names that a file, or one of the suite's that it imports, asks `impl`."""
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
    """Return the text of a file; a package has none that matters."""
    return file.read_text() if file.exists() else ""


@cache
def asked(file: Path, test: str) -> frozenset[str]:
    """Return the names that a test asks `impl` for, its helpers' and its fixtures' included."""
    seen: set[tuple[Path, str]] = set()
    waiting, found = [(file, test)], set[str]()
    while waiting:
        place = waiting.pop()
        if place not in seen and place[1] in functions(place[0]):
            here = functions(place[0])[place[1]]
            found |= here.names
            waiting += [imported(place[0]).get(name, (place[0], name)) for name in here.functions]
        seen.add(place)
    return frozenset(found)


@cache
def functions(file: Path) -> dict[str, Asked]:
    """Return what each function of a file says, its decorators apart."""
    found = {}
    for node in parsed(file).body:
        if isinstance(node, ast.FunctionDef):
            inner = [n for part in (node.args, *node.body) for n in ast.walk(part)]
            names = {
                n.attr
                for n in inner
                if isinstance(n, ast.Attribute) and ast.unparse(n.value) == "impl"
            }
            words = {n.id for n in inner if isinstance(n, ast.Name)}
            words |= {n.arg for n in inner if isinstance(n, ast.arg)}
            found[node.name] = Asked(PUBLIC & names, frozenset(words))
    return found


@cache
def imported(file: Path) -> dict[str, tuple[Path, str]]:
    """Return where the names that a file has from other files of the suite are defined."""
    found = {}
    for node in parsed(file).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("spec_tests."):
            home = file_of(str(node.module))
            found |= {alias.asname or alias.name: (home, alias.name) for alias in node.names}
    return found


@cache
def parsed(file: Path) -> ast.Module:
    """Return the text of a file as a tree; a package holds no function of a test."""
    return ast.parse(text(file))
