"""Draws of queries and caches."""

import torch
from hypothesis import strategies as st

from spec_tests.draw import Refusal, grid, longer, real


@st.composite
def caches(draw, *shapes, low=-16):
    """One tensor for each shape, all of them on the grid or all Gaussian."""
    number = draw(st.sampled_from([lambda *shape: grid(*shape, low=low), real]))
    return [draw(number(*shape)) for shape in shapes]


@st.composite
def sizes(draw):
    """Batch, query heads, key heads, queries, tokens, width, and whether to be causal."""
    batch = draw(st.sampled_from([(), (), (1,), (2,), (0,)]))
    kv_heads, group = draw(st.integers(0, 2)), draw(st.integers(1, 3))
    causal, tokens = draw(st.booleans()), draw(st.integers(0, 6))
    queries = draw(st.integers(0, tokens if causal else 3))
    return batch, group * kv_heads, kv_heads, queries, tokens, draw(st.integers(1, 4)), causal


@st.composite
def attending(draw, shape=sizes(), compressed=False):  # noqa: B008
    """Queries and a cache, or two caches, that any head mapping or mask would tell apart."""
    batch, heads, kv_heads, queries, tokens, width, causal = draw(shape)
    cache = (*batch, kv_heads, tokens, width)
    shapes = [(*batch, heads, queries, width), *[cache] * (4 if compressed else 2)]
    names = ["queries", "keys", "values", "compressed_keys", "compressed_values"]
    drawn = dict(zip(names, draw(caches(*shapes)), strict=False))
    return drawn | dict(causal=causal, scale=draw(st.sampled_from([None, None, 0.25, 1.0])))


def without_values(inputs):
    """Drop what `attention_weights` does not take."""
    return {name: value for name, value in inputs.items() if name != "values"}


INPUTS = dict(
    attention_weights=attending().map(without_values),
    attention=attending(),
    attention_error=attending(compressed=True),
)

queries = torch.tensor([[[1.0, 0.0]], [[0.5, 0.5]]])
cache = torch.tensor([[[0.25, 0.5], [1.0, -0.5]], [[0.0, 0.5], [0.75, -1.0]]])

bad_queries = [
    Refusal("queries", lambda tensor: tensor[..., :0], ValueError, "at least 1"),
    Refusal("queries", lambda tensor: tensor.repeat(2, 1, 1)[:3], ValueError, "multiple"),
    Refusal("queries", lambda tensor: tensor.repeat(1, 3, 1), ValueError, "at most"),
]
bad_keys = [Refusal("keys", longer, ValueError, "shape")]
bad_values = [Refusal("values", longer, ValueError, "shape")]

plain = dict(queries=queries, keys=cache, values=cache, causal=True, scale=None)

REFUSALS = dict(
    attention_weights=(without_values(plain), [*bad_queries, *bad_keys]),
    attention=(plain, [*bad_queries, *bad_keys, *bad_values]),
    attention_error=(
        plain | dict(compressed_keys=cache, compressed_values=cache),
        [
            *bad_queries,
            *bad_keys,
            *bad_values,
            Refusal("compressed_keys", longer, ValueError, "shape"),
            Refusal("compressed_values", longer, ValueError, "shape"),
        ],
    ),
)
