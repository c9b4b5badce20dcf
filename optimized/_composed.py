"""The specification's own text over fast leaves: what a twin would only retype.

A function of the reference that has no loop of its own is fast once what it calls is. `composed`
rebuilds it: the same code, in which every function of the reference means its fast body, which is
the one of the same name at the same place under `optimized.vector`, or the text rebuilt likewise.
`over` binds such bodies once more, over kernels.
"""

import sys
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from inspect import isfunction, unwrap
from pkgutil import walk_packages
from types import CodeType, FunctionType, ModuleType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

CHECKS = ("contract", "checks", "preconditions")
"""Modules of the reference that refuse: what they do is no part of a body."""

KEPT = (*CHECKS, "types", "precision", "docstrings")
"""Modules of the reference that have no twin."""


def modules(package: str) -> list[ModuleType]:
    """Return the modules of a package, those of packages within it too."""
    places = walk_packages(import_module(package).__path__, f"{package}.")
    return [import_module(place.name) for place in places]


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
    return _copy(value, twin)


def _copy(function: FunctionType, twin: ModuleType) -> FunctionType:
    """Return a function of the same code among the names of another module."""
    code, name = function.__code__, function.__name__
    copy = FunctionType(code, vars(twin), name, function.__defaults__, function.__closure__)
    for what in ("__qualname__", "__doc__", "__annotations__", "__kwdefaults__"):
        setattr(copy, what, getattr(function, what))
    copy.__module__ = twin.__name__
    return copy


def over(package: str, leaves: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return what stands for vectorised bodies that call other ones, over these leaves.

    Args:
        package: what the modules are called that hold the texts.
        leaves: what takes the place of which vectorised body.

    Returns:
        The leaves, and a text for each function that calls one of them by its bare name, or
        another that does.
    """
    layers = ("optimized.vector.", "optimized.composed.")
    homes = {name: vars(home) for name, home in sys.modules.items() if name.startswith(layers)}
    calls = {
        function: {id(names.get(name)) for name in _names(function.__code__)}
        for home, names in homes.items()
        for function in names.values()
        if isfunction(function) and function.__module__ == home and function not in leaves
    }
    bound = {id(leaf): leaf for leaf in leaves}
    while more := {id(f): f for f in calls if id(f) not in bound and calls[f] & bound.keys()}:
        bound |= more
    twins = {home: ModuleType(home.replace("optimized", package, 1)) for home in homes}
    found = {
        body: leaves.get(body) or _copy(body, twins[body.__module__]) for body in bound.values()
    }
    for home, names in homes.items():
        here = {name: found[bound[id(x)]] if id(x) in bound else x for name, x in names.items()}
        if any(here[name] is not names[name] for name in names):
            vars(twins[home]).update(here | {"__name__": twins[home].__name__})
            sys.modules[twins[home].__name__] = twins[home]
    return found


def _names(code: CodeType) -> set[str]:
    """Return the names that code looks up, in the functions inside it too."""
    inner = [part for part in code.co_consts if isinstance(part, CodeType)]
    return set(code.co_names).union(*map(_names, inner))
