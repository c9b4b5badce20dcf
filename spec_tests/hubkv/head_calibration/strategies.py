"""Strategies for scores, and for the weights of their heads."""

import math

import torch
from hypothesis import strategies as st

from spec_tests.strategies import (
    Refusal,
    booleans,
    heads,
    importance,
    of_one_shape,
    rows,
    strategy_or_none,
)

taus = st.sampled_from([0.0, 0.3, 0.5, 1.0, 2.0])
epsilons = st.sampled_from([0.0, 1e-6, 0.25])
bounds = st.sampled_from([(0.8, 1.2), (1.0, 1.0), (0.25, 4.0), (2**-24, math.inf), (1.5, 2.0)])


@st.composite
def selectivity(draw, unprotected=True):
    """Scores, protected tokens anywhere."""
    shape = draw(rows)
    protected = draw(strategy_or_none(booleans(*shape), unprotected))
    return dict(
        scores=draw(importance(*shape, close=False)), protected=protected, epsilon=draw(epsilons)
    )


@st.composite
def head_weights(draw):
    """Selectivities, including 0 and equal ones."""
    minimum, maximum = draw(bounds)
    shape = (*draw(heads), draw(st.integers(0, 6)))
    return dict(
        selectivity=draw(importance(*shape)), tau=draw(taus), minimum=minimum, maximum=maximum
    )


def weights_of_heads(*shape):
    """Return a strategy for a weight of every head."""
    return importance(*shape[:-1], high=32)


INPUTS = dict(calibrate=of_one_shape(scores=importance, weights=weights_of_heads))

scores = torch.tensor([[0.5, 0.25, 0.75, 0.0], [0.25, 0.25, 0.5, 1.0]])
mask = torch.tensor([[True, False, False, True], [False, False, True, True]])
weights = torch.tensor([0.5, 1.0])
bad_bounds = [
    Refusal("maximum", 0.5, ValueError, ">= minimum"),
    Refusal("maximum", math.nan, ValueError, ">= minimum"),
]

GOOD = dict(
    selectivity=dict(scores=scores, protected=mask, epsilon=1e-6),
    calibrate=dict(scores=scores, weights=weights),
)
REFUSALS = dict(
    head_weights=(dict(selectivity=weights, tau=0.5, minimum=0.8, maximum=1.2), bad_bounds),
)
