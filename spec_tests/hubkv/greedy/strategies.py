"""Strategies for weights with equal gains."""

import torch
from hypothesis import strategies as st

from spec_tests.hubkv.coverage.strategies import not_square, sixteenths_with_ties, weights
from spec_tests.hubkv.coverage_kernels.strategies import few
from spec_tests.strategies import Refusal, heads, importance


def spread(scores, falling):
    """Return coverage weights of scores, uniform within a radius of 2 or Gaussian."""
    places = torch.arange(scores.shape[-1])
    distances = (places[:, None] - places).abs()
    near = torch.exp(distances**2 / -4.5) if falling else (distances <= 2).float()
    return scores[..., None, :] * near / near.sum(0)


@st.composite
def greedy(draw):
    """Weights whose gains are often equal, or coverage weights, rounded to float32."""
    tokens = draw(few)
    shape, falling = (*draw(heads), tokens), draw(st.booleans())
    weights = draw(
        sixteenths_with_ties(*shape, tokens)
        | importance(*shape, high=4, close=False).map(lambda s: spread(s, falling))
    )
    return dict(weights=weights, keep=draw(st.integers(0, tokens)))


INPUTS = dict(lazy_greedy=greedy())

good = dict(weights=weights, keep=2)
bad = [not_square, Refusal("keep", 4, ValueError, "[0, 3]")]

REFUSALS = dict(greedy=(good, bad), lazy_greedy=(good, bad))
