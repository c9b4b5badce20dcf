"""A griffe extension that shows each function's argument checks on its page."""

from collections.abc import Iterator
from importlib import import_module
from inspect import getdoc, unwrap
from typing import Any, get_args

from griffe import Class, Extension, Function, Object
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
