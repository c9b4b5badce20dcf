"""Strategies for attention to sum, and for mass that selects heavy hitters."""

import torch
from hypothesis import strategies as st

from spec_tests.attention.strategies import bad_queries, log_sum_exp
from spec_tests.strategies import Refusal, grid, heads, importance, longer, tokens

batches = st.sampled_from([(), (2,), (), (2,), (0,)])

ratios = st.sampled_from([0.0, 0.02, 0.1, 0.25, 0.5, 1.0])


@st.composite
def attention_mass(draw):
    """Inputs with grouped heads, at most as many queries as tokens, and a span of any length."""
    batch, width = draw(batches), draw(st.integers(1, 4))
    kv_heads, group = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    length = draw(st.integers(0, 8))
    count = draw(st.integers(0, length))
    attending = dict(
        queries=draw(grid(*batch, kv_heads * group, count, width, low=-16)),
        keys=draw(grid(*batch, kv_heads, length, width, low=-16)),
        causal=length == 0 or draw(st.booleans()),
    )
    return attending | dict(
        span=draw(st.none() | st.integers(0, length)),
        normalize=draw(st.booleans()),
        log_sum_exp=log_sum_exp(**attending) if draw(st.booleans()) else None,
    )


@st.composite
def masses(draw):
    """Attention mass."""
    return draw(importance(*draw(heads), draw(tokens), low=-2, high=6))


windows = st.integers(0, 30)
"""Recent windows, which may cover all tokens."""

by_mass = dict(mass=masses(), ratio=ratios, recent=windows, outside_recent=st.booleans())
INPUTS = dict(
    heavy_hitter_mask=by_mass, recent_mask=dict(tokens=tokens, recent=windows), h2o_mask=by_mass
)

x = torch.tensor([[0.5, 0.25, 0.75, 0.0], [-1.0, 1.0, 3.0, 2.0]])
keys = torch.stack([x, -x])

good = dict(mass=x, ratio=0.5, recent=1, outside_recent=False)
GOOD = dict(heavy_hitter_mask=good, recent_mask=dict(tokens=4, recent=2), h2o_mask=good)

REFUSALS = dict(
    attention_mass=(
        dict(queries=keys, keys=keys, span=2, causal=True, normalize=False, log_sum_exp=None),
        [
            Refusal("keys", lambda k: k[..., :1], ValueError, "shape"),
            *bad_queries,
            Refusal("queries", lambda q: q * 2.0**126, ValueError, "queries"),
            Refusal("span", 3, ValueError, "[0, 2]"),
            Refusal("log_sum_exp", longer(keys.sum(-1)), ValueError, "shape (2, 2)"),
        ],
    ),
)
