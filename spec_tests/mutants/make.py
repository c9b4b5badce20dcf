"""How a mutant is made: the reference with one function replaced."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

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
        module = SimpleNamespace(**names | {function: body})
        module.is_killed_by = partial(ends, killer.partition("[")[0])
        MUTANTS[name] = Mutant(function, lie, killer, module)
        return body

    return register


def in_turn(queries: Tensor, kv_heads: int) -> Tensor:
    """Order query heads so that each key head gets every so many of them, not neighbours."""
    order = torch.arange(queries.shape[-3]).view(-1, max(1, kv_heads)).T.flatten()
    return queries[..., order, :, :]


def weighed(queries: Tensor, keys: Tensor) -> Tensor:
    """Return the weights of every query head, `[*batch, kv_heads, group, queries, tokens]`."""
    weights = reference.attention_weights(queries, keys)
    kv_heads = keys.shape[-3]
    group = weights.shape[-3] // max(1, kv_heads)
    return weights.reshape(*weights.shape[:-3], kv_heads, group, *weights.shape[-2:])


def ends(place: str, nodeid: str) -> bool:
    """Whether `nodeid`, up to its parameters, names the test at `place`."""
    return nodeid.partition("[")[0].endswith(place)
