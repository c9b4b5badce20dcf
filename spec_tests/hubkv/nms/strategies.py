"""Strategies for scores for non-maximum suppression."""

import torch
from hypothesis import strategies as st

from spec_tests.strategies import heads, importance, tokens


@st.composite
def nms(draw):
    """Scores with ties, and beside each other."""
    return dict(
        scores=draw(importance(*draw(heads), draw(tokens))),
        radius=draw(st.integers(0, 6)),
        factor=draw(st.sampled_from([0.0, 0.25, 0.3, 1.0])),
    )


GOOD = dict(nms=dict(scores=torch.tensor([[0.5, 0.25, 0.75, 0.0]]), radius=1, factor=0.3))
