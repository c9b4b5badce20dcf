"""The rows of the plain ways: a function, its inputs at a length, and what is compared."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

import optimized as kv

KV_HEADS, QUERY_HEADS, WIDTH = 8, 32, 128
"""The layer of the rows, that of Llama-3-8B."""
Inputs = dict[str, Any]
Draw = Callable[[int, torch.dtype], Inputs]


class Row(NamedTuple):
    """A plain way, and the inputs on which it is compared."""

    plain: Callable[..., Any]
    inputs: Draw
    shape: str
    compared: Callable[[Any], Any]  # the part of the public function's result that both return


ROWS: dict[str, Row] = {}
"""Every plain way under the name of its public function."""


def row(
    inputs: Draw,
    shape: str,
    compared: Callable[[Any], Any] = lambda x: x,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as the plain way to the public function of its name."""

    def register(plain: Callable[..., Any]) -> Callable[..., Any]:
        name = plain.__name__  # pyright: ignore[reportFunctionMemberAccess]
        ROWS[name] = Row(plain, inputs, shape, compared)
        return plain

    return register


def layer(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return the keys and values of a layer."""
    shape = 1, KV_HEADS, tokens, WIDTH
    return dict(keys=normal(1, *shape).to(dtype), values=normal(2, *shape).to(dtype))


def keys_alone(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return the keys of a layer."""
    return dict(keys=normal(1, 1, KV_HEADS, tokens, WIDTH).to(dtype))


def last_queries(count: int, heads: int = QUERY_HEADS, values: bool = False) -> Draw:
    """Return the inputs of the last `count` queries, or of all if there are fewer tokens."""

    def draw(tokens: int, dtype: torch.dtype) -> Inputs:
        queries = normal(0, 1, heads, min(count, tokens), WIDTH).to(dtype)
        return dict(queries=queries) | (layer if values else keys_alone)(tokens, dtype)

    return draw


def normal(seed: int, *shape: int) -> Tensor:
    """Return a tensor of standard normal numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def importance(seed: int, *shape: int) -> Tensor:
    """Return uniform scores in [0, 1)."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def scored(**settings: Any) -> Draw:
    """Return the inputs of one score for each token of a layer, with settings.

    A setting that is a function is called with the scores.
    """

    def draw(tokens: int, dtype: torch.dtype) -> Inputs:
        scores = importance(3, 1, KV_HEADS, tokens).to(dtype)
        rest = {name: x(scores) if callable(x) else x for name, x in settings.items()}
        return dict(scores=scores) | rest

    return draw


def quarter(scores: Tensor) -> int:
    """Return a budget of a quarter of the tokens."""
    return scores.shape[-1] // 4


def both_ends(scores: Tensor) -> Tensor:
    """Return the mask of four sinks and the last two percent."""
    return kv.protected_mask(scores.shape[-1]).expand(scores.shape)
