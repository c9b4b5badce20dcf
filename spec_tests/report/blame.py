"""Attribute a wrong result to the functions that it is composed of.

A result follows from these functions if the specification gives it too, when it calls the module's
versions of them.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from inspect import isfunction, unwrap
from types import CodeType
from typing import Any
from unittest.mock import patch

import reference
from spec_tests.report.calls import Call
from spec_tests.report.fault_diagnosis import explains


def explaining_steps(call: Call) -> list[str]:
    """Return the steps that explain a call's outcome: the specification with them gives it.

    Steps that suffice alone come before all of them together.
    """
    names = [name for name in steps(call.name) if call.impl and call.impl.offers([name])]
    if not names or not is_explained(call, names):
        return []
    alone = [name for name in names if is_explained(call, [name])]
    return alone or names


def timed_out_steps(call: Call) -> list[str]:
    """Return the steps that exceeded the time limit in the module under test."""
    strikes = call.impl.limit.strikes if call.impl else {}
    return [name for name in steps(call.name) if name in strikes]


def is_explained(call: Call, names: list[str]) -> bool:
    """Whether the specification with the module's functions `names` gives a call's outcome."""
    with calling_module_functions(call.impl, names):
        return explains(getattr(reference, call.name), call, sys.maxsize)


@cache
def steps(name: str) -> list[str]:
    """Return the public functions that a function of the specification calls, also indirectly."""
    seen, waiting = set[Any](), [unwrap(getattr(reference, name))]
    while waiting:
        here = waiting.pop()
        called = [
            unwrap_cached_function(vars(sys.modules[here.__module__]).get(word))
            for word in names_read(here)
        ]
        found = {f for f in called if isfunction(f) and f.__module__.startswith("reference.")}
        waiting += found - seen
        seen |= found
    return [n for n in reference.__all__ if n != name and unwrap(getattr(reference, n)) in seen]


def names_read(function: Any) -> Iterator[str]:
    """Yield the names that a function's body reads."""
    waiting = [function.__code__]
    while waiting:
        code = waiting.pop()
        yield from code.co_names
        waiting += [part for part in code.co_consts if isinstance(part, CodeType)]


@contextmanager
def calling_module_functions(impl: Any, names: Iterable[str]) -> Iterator[None]:
    """Make the specification call the module's functions of these names."""
    own = {unwrap(getattr(reference, name)): getattr(impl, name) for name in names}
    with ExitStack() as stack:
        for home in [home for at, home in sys.modules.items() if at.startswith("reference.")]:
            for word, value in [*vars(home).items()]:
                if isfunction(function := unwrap_cached_function(value)) and function in own:
                    stack.enter_context(patch.object(home, word, own[function]))
        yield


def unwrap_cached_function(value: Any) -> Any:
    """Return a function without the cache around it."""
    return value.__wrapped__ if hasattr(value, "cache_parameters") else value
