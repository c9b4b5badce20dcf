"""Strategies for scores to mix."""

from functools import partial

import torch
from hypothesis import strategies as st

from spec_tests.strategies import importance, of_one_shape

powers = st.sampled_from([0.5, 1.0, 2.0, 3.0])
ratios = st.integers(0, 100).map(lambda hundredths: hundredths / 100)

signed = partial(importance, low=-8)
INPUTS = dict(gate=of_one_shape(scores=signed, corrected=signed, ratio=ratios, power=powers))

scores = torch.tensor([[0.5, 0.25, 0.75, 0.0], [0.25, 0.25, 0.5, 1.0]])

GOOD = dict(gate=dict(scores=scores, corrected=scores / 2, ratio=0.5, power=2.0))
