"""A griffe extension that shows each function's argument checks on its page."""

import re
from collections.abc import Iterator
from importlib import import_module
from inspect import getdoc, unwrap
from typing import Any, get_args

from griffe import Class, Extension, Function, Module, Object
from torch import Tensor

import reference
from reference.contract import types
from reference.contract.docstrings import admits, describe_parameters


class Contracts(Extension):
    """Use docstrings as `help` prints them, and add the admissible values of each argument."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change a function or class, and add the argument types to their module for its page."""
        if isinstance(obj, Function | Class):
            as_printed(obj)
        if isinstance(obj, Function):
            show_default_numbers(obj)
        if obj.path == types.__name__:
            obj.extra["contract"] = dict(words())

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """Give each public function those functions of its file with which it is written."""
        for module in modules(pkg):
            for shown in module.functions.values():
                if "contract" in shown.extra:
                    shown.extra["helpers"] = {"called": [*called(shown, set())]}


def modules(package: Module) -> Iterator[Module]:
    """Yield a package and the modules below it."""
    yield package
    for module in package.modules.values():
        if not module.is_alias:
            yield from modules(module)


def called(function: Function, seen: set[str]) -> Iterator[Function]:
    """Yield the functions of its file, without a page of their own, that a function calls."""
    first = function.docstring.endlineno or 0 if function.docstring else function.lineno or 0
    body = "\n".join(function.source.splitlines()[first - (function.lineno or 0) + 1 :])
    for name in re.findall(r"\b(\w+)\(", body):
        other = function.module.functions.get(name)
        if other is None or other.is_alias or "contract" in other.extra:
            continue
        if name not in seen:
            seen.add(name)
            yield other
            yield from called(other, seen)


def as_printed(shown: Function | Class) -> None:
    """Set the docstring of a public name to the one it has at run time."""
    public = unwrap(vars(reference).get(shown.name, as_printed))
    if shown.docstring and shown.path == f"{getattr(public, '__module__', '')}.{shown.name}":
        shown.docstring.value = getdoc(public) or ""
        if not isinstance(public, type) or hasattr(public, "_fields"):
            shown.extra["contract"] = describe_parameters(public)


def show_default_numbers(shown: Function) -> None:
    """Show a default that is a field of a record, such as `HUB.radius`, as its value."""
    for parameter in shown.parameters:
        record, _, field = str(parameter.default).partition(".")
        if field.isidentifier():
            value = getattr(getattr(import_module(shown.module.path), record), field)
            parameter.default = repr(value)


def words() -> Iterator[tuple[str, str]]:
    """Yield the name of each argument type, and the values it admits."""
    for name, kind in vars(types).items():
        if get_args(kind):
            yield name, admits(kind)
        elif getattr(kind, "__module__", "") == types.__name__ and hasattr(kind, "values"):
            yield name, admits(kind[Tensor, "…"])
