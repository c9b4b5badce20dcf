"""Strategies for scores to find hubs among."""

import torch
from hypothesis import strategies as st

from spec_tests.strategies import booleans, heads, importance, tokens

gammas = st.sampled_from([0.25, 0.3, 0.5, 0.75])


@st.composite
def shapes(draw):
    """A shape for scores."""
    return (*draw(heads), draw(tokens))


@st.composite
def hub_mask(draw):
    """Scores, protected tokens anywhere."""
    shape = draw(shapes())
    return dict(
        scores=draw(importance(*shape, low=-4, high=8)),
        radius=draw(st.integers(0, 6)),
        protected=draw(st.none() | booleans(*shape)),
    )


@st.composite
def discount(draw):
    """Scores and any mask, whether it marks hubs or not."""
    shape = draw(shapes())
    return dict(scores=draw(importance(*shape)), hubs=draw(booleans(*shape)), gamma=draw(gammas))


@st.composite
def smd(draw):
    """Scores, protected tokens anywhere."""
    shape = draw(shapes())
    return dict(
        scores=draw(importance(*shape)),
        radius=draw(st.integers(0, 6)),
        gamma=draw(gammas),
        protected=draw(st.none() | booleans(*shape)),
    )


scores = torch.tensor([[0.5, 0.25, 0.75, 0.0]])
mask = torch.tensor([[True, False, False, True]])

GOOD = dict(
    hub_mask=dict(scores=scores, radius=1, protected=mask),
    discount=dict(scores=scores, hubs=mask, gamma=0.5),
    smd=dict(scores=scores, radius=1, gamma=0.5, protected=mask),
)
