"""Run the code of a function of the specification with fast functions in place of others.

A function without a loop of its own is fast if the functions that it calls are fast. `rebind`
returns a function with the same code, in which the given names mean other functions:

    smd = rebind(reference.smd, hub_mask=hub_mask)
"""

import sys
from collections.abc import Callable
from inspect import unwrap
from types import CodeType, FunctionType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def rebind(function: Callable[P, R], **names: Any) -> Callable[P, R]:
    """Return a function with the same code, in which some global names have other values.

    The new function belongs to the module that calls `rebind`, where `pickle` and `torch.compile`
    find it. Its globals are those of that module. If that module lacks a name that the code looks
    up, the name is copied from the module of the original; ruff (F821) still finds a missing
    import.

    Args:
        function: the function; a public function of the reference loses its argument checks.
        names: the new value of each global name that the code looks up.

    Raises:
        TypeError: the code does not look up one of the names.
        ValueError: the module already has another value under one of the names.
    """
    original: Any = unwrap(function)
    here, called = sys._getframe(1).f_globals, looked_up(original.__code__)
    if strange := names.keys() - called:
        raise TypeError(f"{original.__qualname__} does not call {', '.join(sorted(strange))}")
    there = original.__globals__
    for name, value in ({name: there[name] for name in called & there.keys()} | names).items():
        if here.setdefault(name, value) is not value:
            raise ValueError(f"{here['__name__']} has another {name}")
    code, name = original.__code__, original.__name__
    copy: Any = FunctionType(code, here, name, original.__defaults__, original.__closure__)
    for what in ("__qualname__", "__doc__", "__annotations__", "__kwdefaults__"):
        setattr(copy, what, getattr(original, what))
    copy.__module__ = here["__name__"]
    copy.text_of = original
    return copy


def looked_up(code: CodeType) -> set[str]:
    """Return the global names that code looks up, including those of inner functions."""
    inner = [part for part in code.co_consts if isinstance(part, CodeType)]
    return set(code.co_names).union(*map(looked_up, inner))
