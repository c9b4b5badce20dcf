"""Strategies for queries to a cache after some tokens."""

import torch
from hypothesis import strategies as st

from reference import HexCache
from spec_tests.attention.strategies import query_refusals
from spec_tests.hex.cache import strategies
from spec_tests.hex.cache.strategies import KV_HEADS, WIDTH, caches
from spec_tests.scorers.attention_inputs import left_padding
from spec_tests.strategies import Refusal, generators, longer, needs_expander_mask


def tokens_of(cache: HexCache) -> int:
    """Return the number of tokens in a cache."""
    return sum(block.dynamic.shape[-1] for block in cache.blocks) + cache.residual_keys.shape[-2]


@st.composite
def hex_attention_inputs(draw, cache=caches(), padded=st.booleans()):  # noqa: B008
    """Inputs with up to three queries, and one, two or eight query heads a key head."""
    cache, causal = draw(cache), draw(st.booleans())
    batch, tokens = cache.residual_mass.shape[:-1], tokens_of(cache)
    group, count = draw(st.sampled_from([1, 2, 8])), draw(st.integers(0, 3))
    shape = *batch, group * KV_HEADS, min(count, tokens) if causal else count, WIDTH
    return dict(
        queries=torch.randn(shape, generator=draw(generators)),
        cache=cache,
        valid=draw(left_padding(batch, tokens)) if draw(padded) else None,
        causal=causal,
        scale=draw(st.sampled_from([None, None, 0.25, 1.0])),
        mass=draw(st.booleans()),
    )


INPUTS = dict(hex_attention=hex_attention_inputs())

extended = hex_attention_inputs(caches(extended=True))

EXTENDED = dict(hex_attention=extended.map(lambda x: x | dict(log_sum_exp=True)))

DRAWN = dict(hex_attention=needs_expander_mask)

queries = torch.ones(2 * KV_HEADS, 3, WIDTH)
valid = torch.arange(11) >= 2

REFUSALS = dict(
    hex_attention=(
        dict(
            queries=queries,
            cache=strategies.cache,
            valid=valid,
            causal=True,
            scale=None,
            mass=False,
        ),
        [
            *query_refusals(tokens=11),
            Refusal("valid", longer, ValueError, "shape (11,)"),
            Refusal("valid", lambda v: ~v, ValueError, "false on the left"),
        ],
    ),
)
