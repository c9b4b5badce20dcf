"""Strategies for scores to mix."""

import torch
from hypothesis import strategies as st

from spec_tests.hubkv.discount.strategies import shapes
from spec_tests.strategies import importance

powers = st.sampled_from([0.5, 1.0, 2.0, 3.0])
ratios = st.integers(0, 100).map(lambda hundredths: hundredths / 100)


@st.composite
def gate(draw):
    """Scores of either sign: the gate mixes any numbers."""
    shape = draw(shapes())
    return dict(
        scores=draw(importance(*shape, low=-8)),
        corrected=draw(importance(*shape, low=-8)),
        ratio=draw(ratios),
        power=draw(powers),
    )


scores = torch.tensor([[0.5, 0.25, 0.75, 0.0], [0.25, 0.25, 0.5, 1.0]])

GOOD = dict(gate=dict(scores=scores, corrected=scores / 2, ratio=0.5, power=2.0))
