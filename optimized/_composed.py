"""The specification's own text over fast leaves: what a twin would only retype.

A function of the reference that has no loop of its own is fast once what it calls is. `composed`
rebuilds it: the same code, in which every function of the reference means its fast body, which is
the one of the same name at the same place under `optimized.vector`, or the text rebuilt likewise.
"""

import sys
from collections.abc import Callable
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from inspect import isfunction, unwrap
from types import FunctionType, ModuleType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

KEPT = ("careful", "contract", "errors", "kinds", "precision", "rules")
"""Modules of the reference that have no twin."""


def composed(spec: Callable[P, R]) -> Callable[P, R]:
    """Return the function that stands for `spec`: its own body if there is one, or its text."""
    spec = unwrap(spec)
    home, name = spec.__module__, spec.__name__
    return getattr(_bodies(home), name, None) or vars(_text(home))[name]


def _bodies(home: str) -> ModuleType | None:
    """Return the module of vectorised bodies that mirrors one of the reference."""
    place = f"optimized.vector{home.removeprefix('reference')}"
    try:
        found = find_spec(place)
    except ModuleNotFoundError:  # of the package it would be in
        return None
    return import_module(place) if found else None


@cache
def _text(home: str) -> ModuleType:
    """Return a module with the text of one of the reference, over other leaves.

    It is a real one: `torch.compile` and `pickle` find a function through its module's name.
    """
    twin = ModuleType(f"optimized.composed{home.removeprefix('reference')}")
    sys.modules[twin.__name__] = twin
    for key, value in vars(sys.modules[home]).items():
        if key not in vars(twin):
            vars(twin)[key] = _twin(value, twin, home)
    return twin


def _twin(value: Any, twin: ModuleType, home: str) -> Any:
    """Return what stands in `twin` for a value of the module `home`."""
    if hasattr(value, "cache_parameters"):
        return lru_cache(**value.cache_parameters())(_twin(value.__wrapped__, twin, home))
    place = getattr(value, "__module__", None) or ""
    if not isfunction(value) or not place.startswith("reference.") or place.endswith(KEPT):
        return value
    if place != home:
        return composed(value)
    if body := getattr(_bodies(home), value.__name__, None):
        return body
    copy = FunctionType(
        value.__code__, vars(twin), value.__name__, value.__defaults__, value.__closure__
    )
    for what in ("__qualname__", "__doc__", "__annotations__", "__kwdefaults__"):
        setattr(copy, what, getattr(value, what))
    copy.__module__ = twin.__name__
    return copy
