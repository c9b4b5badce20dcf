"""Strategies for scores to find hubs among."""

from functools import partial

import torch
from hypothesis import strategies as st

from spec_tests.strategies import booleans, importance, mask_or_none, of_one_shape

gammas = st.sampled_from([0.25, 0.3, 0.5, 0.75])
radii = st.integers(0, 6)

# any mask is admitted as hubs
INPUTS = dict(
    hub_mask=of_one_shape(
        scores=partial(importance, low=-4, high=8), radius=radii, protected=mask_or_none
    ),
    discount=of_one_shape(scores=importance, hubs=booleans, gamma=gammas),
    smd=of_one_shape(scores=importance, radius=radii, gamma=gammas, protected=mask_or_none),
)

scores = torch.tensor([[0.5, 0.25, 0.75, 0.0]])
mask = torch.tensor([[True, False, False, True]])

GOOD = dict(
    hub_mask=dict(scores=scores, radius=1, protected=mask),
    discount=dict(scores=scores, hubs=mask, gamma=0.5),
    smd=dict(scores=scores, radius=1, gamma=0.5, protected=mask),
)
