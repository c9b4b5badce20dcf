"""Strategies for masks, some of them Ramanujan."""

import torch
from hypothesis import strategies as st

from spec_tests.strategies import booleans


@st.composite
def any_mask(draw, least=0):
    """Any mask, including empty and disconnected ones."""
    return dict(mask=draw(booleans(draw(st.integers(least, 8)), draw(st.integers(least, 8)))))


@st.composite
def small_ramanujan_mask(draw):
    """A small Ramanujan mask: a complete graph without a perfect matching."""
    parts = draw(st.integers(4, 7))
    rows = torch.arange(parts)
    shift = draw(st.integers(0, parts - 1))
    return (rows[:, None] - rows) % parts != shift


@st.composite
def any_mask_or_expander(draw):
    """Any mask, or sometimes an expander."""
    return draw(any_mask()) if draw(st.booleans()) else dict(mask=draw(small_ramanujan_mask()))


INPUTS = dict(
    ramanujan_bound=dict(token_degree=st.integers(1, 300), channel_degree=st.integers(1, 300)),
    second_singular_value=any_mask_or_expander(),
    is_ramanujan=any_mask_or_expander(),
)

full = ~torch.eye(4, dtype=torch.bool)

GOOD = dict(
    ramanujan_bound=dict(token_degree=3, channel_degree=3),
    second_singular_value=dict(mask=full),
    is_ramanujan=dict(mask=full),
)
