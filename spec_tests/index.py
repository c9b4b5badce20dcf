"""Which equations the papers have, which code states them, which tests check them."""

import ast
import re
import tomllib
from inspect import getdoc
from pathlib import Path
from typing import Any

import reference

HERE = Path(__file__).parent
ROOT = HERE.parent
ID = re.compile(r"\b(?:HEX|HubKV|GraphKV)-[A-Z]?[A-Za-z]*[\d.]*\d?[a-z]?\b")


def equations() -> dict[str, dict[str, Any]]:
    """Return every id with its title, its place and its kind."""
    beside_the_docs, in_the_wheel = ROOT / "docs/equations.toml", HERE / "equations.toml"
    file = beside_the_docs if beside_the_docs.exists() else in_the_wheel
    return tomllib.loads(file.read_text())


def source(name: str) -> list[str]:
    """Return the ids under `Source:` in a public function's docstring."""
    section = (getdoc(getattr(reference, name)) or "").partition("Source:")[2]
    return ID.findall(section.partition("Reading:")[0])


def cited_by_code() -> dict[str, list[str]]:
    """Return, for each equation, the functions that state it."""
    found: dict[str, list[str]] = {}
    for name in reference.__all__:
        for spec in source(name):
            found.setdefault(spec, []).append(name)
    return found


def cited_by_tests() -> dict[str, list[str]]:
    """Return, for each equation, the tests that carry it in a `spec` mark."""
    found: dict[str, list[str]] = {}
    for path in sorted(HERE.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef):
                continue
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark).startswith("pytest.mark.spec("):
                    place = f"{path.relative_to(ROOT)}::{node.name}"
                    for arg in mark.args:
                        found.setdefault(ast.literal_eval(arg), []).append(place)
    return found
