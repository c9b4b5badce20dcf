"""Strategies for scores for non-maximum suppression."""

import torch
from hypothesis import strategies as st

from spec_tests.hubkv.discount.strategies import radii
from spec_tests.strategies import importance, of_one_shape

factors = st.sampled_from([0.0, 0.25, 0.3, 1.0])
INPUTS = dict(nms=of_one_shape(scores=importance, radius=radii, factor=factors))

GOOD = dict(nms=dict(scores=torch.tensor([[0.5, 0.25, 0.75, 0.0]]), radius=1, factor=0.3))
