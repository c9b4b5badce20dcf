"""Show on the pages what the contract says: an extension of griffe, which reads docstrings."""

from collections.abc import Iterator
from inspect import getdoc, unwrap
from typing import Any, get_args

from griffe import Class, Extension, Function, Module
from torch import Tensor

import reference
from reference._validation import types
from reference._validation.docstrings import admits, admitted


class Contracts(Extension):
    """Take docstrings as `help` prints them, and say what each kind of argument admits."""

    def on_function(self, *, func: Function, **_: Any) -> None:
        """A function's arguments, each with its range, and what is refused."""
        as_printed(func)

    def on_class(self, *, cls: Class, **_: Any) -> None:
        """Settings, each with its range."""
        as_printed(cls)

    def on_module(self, *, mod: Module, **_: Any) -> None:
        """The kinds, for the template of their page."""
        if mod.path == types.__name__:
            mod.extra["contract"] = dict(words())


def as_printed(shown: Function | Class) -> None:
    """Give a public name the docstring that it has when it runs."""
    public = unwrap(vars(reference).get(shown.name, as_printed))
    if shown.docstring and shown.path == f"{getattr(public, '__module__', '')}.{shown.name}":
        shown.docstring.value = getdoc(public) or ""
        if not isinstance(public, type) or hasattr(public, "_fields"):
            shown.extra["contract"] = admitted(public)


def words() -> Iterator[tuple[str, str]]:
    """Yield the name of each kind, and what it admits."""
    for name, kind in vars(types).items():
        if get_args(kind):
            yield name, admits(kind)
        elif getattr(kind, "__module__", "") == types.__name__ and hasattr(kind, "values"):
            yield name, admits(kind[Tensor, "…"])
