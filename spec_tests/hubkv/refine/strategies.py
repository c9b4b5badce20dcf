"""Strategies for layers of heads, and for the parameters of the correction."""

from functools import partial

import torch
from hypothesis import strategies as st

from spec_tests.hubkv.discount.strategies import gammas, radii
from spec_tests.hubkv.head_calibration import strategies as head_calibration
from spec_tests.hubkv.head_calibration.strategies import mask, scores
from spec_tests.hubkv.ratio_gate.strategies import powers, ratios
from spec_tests.strategies import booleans, importance, of_one_shape, tokens

short = st.integers(0, 4)
layers = st.sampled_from([(1,), (3,), (2, 2), (2, 1, 3), (0, 2), (2, 0)])
"""Axes before the token axis, where the heads of a layer share a mean."""


@st.composite
def scores_and_protected(draw):
    """Scores with a head axis; protected tokens anywhere, nowhere, at the ends, or a whole head."""
    shape = (*draw(layers), draw(tokens))
    sinks, recent, position = draw(short), draw(short), torch.arange(shape[-1])
    ends = (position < sinks) | (position >= shape[-1] - recent)
    first = torch.zeros(shape, dtype=torch.bool)
    first[..., :1, :] = True
    masks = st.just(ends.expand(shape)) | st.just(first) | booleans(*shape)
    protected = draw(st.none() | masks)
    return draw(importance(*shape, close=False)), protected


@st.composite
def knobs(draw):
    """The parameters of the correction, without ratio and power."""
    minimum, maximum = draw(head_calibration.bounds)
    return dict(
        radius=draw(radii),
        gamma=draw(gammas),
        tau=draw(head_calibration.taus),
        minimum=minimum,
        maximum=maximum,
        epsilon=draw(head_calibration.epsilons),
    )


@st.composite
def correction(draw):
    """Layers of heads, and all parameters except the gate's."""
    scores, protected = draw(scores_and_protected())
    return dict(scores=scores, protected=protected, **draw(knobs()))


@st.composite
def hubkv_refine(draw):
    """Layers of heads at any ratio."""
    return dict(**draw(correction()), ratio=draw(ratios), power=draw(powers))


# sinks and window may be longer than the sequence; scores are of either sign
INPUTS = dict(
    protected_mask=dict(
        tokens=st.integers(0, 300), sinks=st.integers(0, 8), recent=st.none() | st.integers(0, 300)
    ),
    shift_scores=of_one_shape(scores=partial(importance, low=-8, high=8)),
)

settings = dict(radius=1, gamma=0.5, tau=0.5, minimum=0.8, maximum=1.2, epsilon=1e-6)
corrected = dict(scores=scores, protected=mask, **settings)

GOOD = dict(protected_mask=dict(tokens=10, sinks=4, recent=2), shift_scores=dict(scores=scores))
REFUSALS = dict(hubkv_refine=(dict(**corrected, ratio=0.5, power=2.0), head_calibration.bad_bounds))
