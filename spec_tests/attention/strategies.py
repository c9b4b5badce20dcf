"""Strategies for queries and caches."""

from functools import partial
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from spec_tests.strategies import Refusal, gaussian_tensor, grid, last_element_replacer, longer

on_grid = partial(grid, low=-16)


@st.composite
def caches(draw, *shapes, numbers=(on_grid, gaussian_tensor)):
    """One tensor for each shape, all on the grid or all Gaussian."""
    number = draw(st.sampled_from(numbers))
    return [draw(number(*shape)) for shape in shapes]


@st.composite
def sizes(draw, least=0):
    """Batch, query heads, key heads, queries, tokens, width, and the flag `causal`.

    `least` is 0 or 1: the least number of heads, queries and tokens.
    """
    batch = draw(st.sampled_from([(), (), (1,), (2,), (0,)][: 5 - least]))
    kv_heads, group = draw(st.integers(least, 2)), draw(st.integers(1, 3))
    causal, tokens = draw(st.booleans()), draw(st.integers(least, 6))
    queries = draw(st.integers(least, tokens if causal else 3))
    return batch, group * kv_heads, kv_heads, queries, tokens, draw(st.integers(1, 4)), causal


@st.composite
def attending(draw, shape=sizes(), compressed=False, numbers=(on_grid, gaussian_tensor)):  # noqa: B008
    """Queries and one or two caches on which every wrong head mapping or mask is detected."""
    batch, heads, kv_heads, queries, tokens, width, causal = draw(shape)
    cache = (*batch, kv_heads, tokens, width)
    shapes = [(*batch, heads, queries, width), *[cache] * (4 if compressed else 2)]
    names = ["queries", "keys", "values", "compressed_keys", "compressed_values"]
    drawn = dict(zip(names, draw(caches(*shapes, numbers=numbers)), strict=False))
    return drawn | dict(causal=causal, scale=draw(st.sampled_from([None, None, 0.25, 1.0])))


def without_values(inputs):
    """Return the inputs without those that `attention_weights` does not have."""
    return {name: value for name, value in inputs.items() if name != "values"}


def log_sum_exp(
    queries: Tensor,
    keys: Tensor,
    causal: bool = True,
    scale: float | None = None,
    valid: Tensor | None = None,
) -> Tensor:
    """Return the log-sum-exp that a flash forward returns, computed in float64.

    It is minus infinity for a query that sees nothing.
    """
    count, tokens = queries.shape[-2], keys.shape[-2]
    by_head = keys.double().repeat_interleave(queries.shape[-3] // max(1, keys.shape[-3]), -3)
    logits = queries.double() @ by_head.mT * (queries.shape[-1] ** -0.5 if scale is None else scale)
    ends = torch.arange(count) + (tokens - count if causal else tokens)
    seen = torch.arange(tokens) <= ends[:, None]
    seen = seen if valid is None else seen & valid[..., None, None, :]
    return logits.masked_fill(~seen, -torch.inf).logsumexp(-1).to(queries.dtype)


def with_log_sum_exp(x):
    """Return a call with the log-sum-exp of its logits; every dtype must hold the numbers."""
    x = without_values(x)
    return x | dict(log_sum_exp=log_sum_exp(**x))


exact = attending(numbers=[on_grid])
shifts = st.sampled_from([0.0, 1 / 32, -1 / 32])
"""Errors of a log-sum-exp that count as rounding."""

INPUTS = dict(
    attention_weights=attending().map(without_values) | exact.map(with_log_sum_exp),
    attention=attending(),
    attention_error=attending(compressed=True),
)


def plain(seed: int, *names: str) -> dict[str, Any]:
    """Return Gaussian numbers: twelve queries of four heads, forty tokens of two key heads."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {name: (2, 4, 12, 16) if name == "queries" else (2, 2, 40, 16) for name in names}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


CACHES = "queries", "keys", "values", "compressed_keys", "compressed_values"
CORNERS = dict(
    attention_weights=[plain(seed, *CACHES[:2]) for seed in range(8)],
    attention=[plain(seed, *CACHES[:3]) for seed in range(8)],
    attention_error=[plain(seed, *CACHES) for seed in range(8)],
)

queries = torch.tensor([[[1.0, 0.0]], [[0.5, 0.5]]])
cache = torch.tensor([[[0.25, 0.5], [1.0, -0.5]], [[0.0, 0.5], [0.75, -1.0]]])


def query_refusals(tokens: int) -> list[Refusal]:
    """Return refusals for queries of `tokens` tokens of two key heads."""

    def one_head_more(queries: Tensor) -> Tensor:
        return torch.cat([queries, queries[..., :1, :, :]], -3)

    def one_token_more(queries: Tensor) -> Tensor:
        return queries[..., :1, :].expand(*queries.shape[:-2], tokens + 1, -1).clone()

    return [
        Refusal("queries", lambda q: q[..., :0], ValueError, "at least 1"),
        Refusal("queries", one_head_more, ValueError, "multiple of the 2"),
        Refusal("queries", one_token_more, ValueError, f"as the {tokens}"),
    ]


bad_queries = query_refusals(tokens=2)
bad_keys = [Refusal("keys", longer, ValueError, "shape")]
bad_values = [Refusal("values", longer, ValueError, "shape")]

sums = log_sum_exp(queries, cache)

bad_sums = [
    Refusal("log_sum_exp", sums > 0, TypeError, "a floating-point"),
    Refusal("log_sum_exp", longer(sums), ValueError, "shape (2, 1)"),
    *(
        Refusal(
            "log_sum_exp", last_element_replacer(bad)(sums), ValueError, "finite but at padding"
        )
        for bad in (torch.nan, torch.inf, -torch.inf)
    ),
]

given = dict(queries=queries, keys=cache, values=cache, causal=True, scale=None)

REFUSALS = dict(
    attention_weights=(
        without_values(given) | dict(log_sum_exp=None),
        [*bad_queries, *bad_keys, *bad_sums],
    ),
    attention=(given, [*bad_queries, *bad_keys, *bad_values]),
    attention_error=(
        given | dict(compressed_keys=cache, compressed_values=cache),
        [
            *bad_queries,
            *bad_keys,
            *bad_values,
            Refusal("compressed_keys", longer, ValueError, "shape"),
            Refusal("compressed_values", longer, ValueError, "shape"),
        ],
    ),
)
