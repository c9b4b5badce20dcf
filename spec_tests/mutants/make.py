"""How a mutant is made: the reference with one function replaced."""

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import reference


class Mutant(NamedTuple):
    """One wrong implementation."""

    function: str  # the public name it replaces
    lie: str  # what it gets wrong
    killer: str  # the end of the id of the law or vector that must fail
    module: SimpleNamespace


MUTANTS: dict[str, Mutant] = {}


def mutant(function: str, lie: str, killer: str) -> Callable[[Callable[..., Any]], Any]:
    """Register the decorated function as a wrong `function`."""

    def register(body: Callable[..., Any]) -> Callable[..., Any]:
        name = body.__name__
        assert name not in MUTANTS, f"two mutants are called {name}"
        assert function in reference.__all__, f"{function} is not in the specification"
        names = {public: getattr(reference, public) for public in reference.__all__}
        MUTANTS[name] = Mutant(function, lie, killer, SimpleNamespace(**names | {function: body}))
        return body

    return register


def standing_in(module: ModuleType) -> list[str]:
    """Return the names of the mutants one file defines."""
    return [name for name in vars(module) if name in MUTANTS]
