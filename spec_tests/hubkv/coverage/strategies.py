"""Strategies for kernels, weights and kept sets."""

import torch
from hypothesis import strategies as st

from spec_tests.hubkv.coverage_kernels.strategies import few
from spec_tests.strategies import (
    Refusal,
    booleans,
    gaussian_tensor,
    generators,
    grid,
    heads,
    longer,
)


@st.composite
def sixteenths_with_ties(draw, *shape):
    """Sixteenths from a seed: exact sums, many ties, and one draw instead of n²."""
    return torch.randint(0, draw(st.integers(2, 9)), shape, generator=draw(generators)) / 16


def rough(*shape):
    """Non-negative numbers: with ties and exact sums, or Gaussian."""
    return sixteenths_with_ties(*shape) | gaussian_tensor(*shape).map(torch.abs)


@st.composite
def coverage_kernel(draw, tokens):
    """A kernel that covers every token: positive at 0, anything further away."""
    near = torch.full((min(tokens, 1),), draw(st.sampled_from([0.25, 1.0])))
    return torch.cat([near, draw(grid(max(tokens - 1, 0), low=0, high=4, scale=0.25))])


@st.composite
def coverage_weights(draw):
    """Scores with many ties and zeros."""
    tokens = draw(few)
    return dict(scores=draw(rough(*draw(heads), tokens)), kernel=draw(coverage_kernel(tokens)))


@st.composite
def coverage(draw):
    """Any non-negative weights, normalised or not, and any set, empty and full ones included."""
    shape = (*draw(heads), draw(few))
    return dict(weights=draw(rough(*shape, shape[-1])), kept=draw(booleans(*shape)))


@st.composite
def overlap(draw):
    """Weights of which some columns are zero."""
    tokens = draw(st.integers(1, 9))
    weights = draw(rough(*draw(heads), tokens, tokens)) * draw(booleans(tokens))
    return dict(weights=weights, hub=draw(st.integers(0, tokens - 1)))


INPUTS = dict(marginal_gain=coverage())

scores = torch.tensor([[0.5, 0.25, 0.75]])
weights = torch.tensor([[[0.5, 0.25, 0.0], [0.25, 0.5, 0.25], [0.0, 0.25, 0.5]]])
kept = torch.tensor([[True, False, True]])
not_square = Refusal("weights", longer, ValueError, "square")

REFUSALS = dict(
    coverage_weights=(
        dict(scores=scores, kernel=torch.ones(3)),
        [Refusal("kernel", torch.tensor([0.0, 0.0, 1.0]), ValueError, "> 0 around every token")],
    ),
    coverage=(dict(weights=weights, kept=kept), [not_square]),
    marginal_gain=(dict(weights=weights, kept=kept), [not_square]),
    overlap=(dict(weights=weights, hub=1), [not_square, Refusal("hub", 3, ValueError, "[0, 2]")]),
)
