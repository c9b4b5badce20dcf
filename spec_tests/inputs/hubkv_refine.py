"""Inputs of HubKV's head statistics, gate, refinement and budgets."""

import math

import torch
from hypothesis import strategies as st
from torch import Tensor

from spec_tests.draw import booleans, grid, heads, maybe, tokens
from spec_tests.hubkv.discount.draws import gammas, shapes
from spec_tests.inputs.hubkv_refusals import REFUSALS

taus = st.sampled_from([0.0, 0.3, 0.5, 1.0, 2.0])
powers = st.sampled_from([0.5, 1.0, 2.0, 3.0])
ratios = st.integers(0, 100).map(lambda hundredths: hundredths / 100)
epsilons = st.sampled_from([0.0, 1e-6, 0.25])
bounds = st.sampled_from([(0.8, 1.2), (1.0, 1.0), (0.25, 4.0), (2**-100, math.inf), (1.5, 2.0)])
short = st.integers(0, 4)
layers = st.sampled_from([(1,), (3,), (2, 2), (2, 1, 3), (0, 2), (2, 0)])
"""Everything before the token axis where the heads of a layer belong together."""


@st.composite
def layered(draw):
    """Scores with a head axis; protected tokens anywhere, nowhere, at the ends, or a whole head."""
    shape = (*draw(layers), draw(tokens))
    sinks, recent, position = draw(short), draw(short), torch.arange(shape[-1])
    ends = (position < sinks) | (position >= shape[-1] - recent)
    first = torch.zeros(shape, dtype=torch.bool)
    first[..., :1, :] = True
    masks = st.just(ends.expand(shape)) | st.just(first) | booleans(*shape)
    protected = draw(st.none() | masks)
    return draw(grid(*shape)), protected


@st.composite
def knobs(draw):
    """The correction's parameters, but the ratio and the gate's power."""
    minimum, maximum = draw(bounds)
    return dict(
        radius=draw(st.integers(0, 6)),
        gamma=draw(gammas),
        tau=draw(taus),
        minimum=minimum,
        maximum=maximum,
        epsilon=draw(epsilons),
    )


@st.composite
def selectivity(draw, unprotected=True):
    """Scores with many ties, protected tokens anywhere."""
    shape = draw(shapes())
    protected = draw(maybe(booleans(*shape), unprotected))
    return dict(scores=draw(grid(*shape)), protected=protected, epsilon=draw(epsilons))


@st.composite
def head_weights(draw):
    """Selectivities, zero ones and equal ones among them."""
    minimum, maximum = draw(bounds)
    shape = (*draw(heads), draw(st.integers(0, 6)))
    return dict(selectivity=draw(grid(*shape)), tau=draw(taus), minimum=minimum, maximum=maximum)


@st.composite
def calibrate(draw):
    """A weight for every head."""
    shape = draw(shapes())
    return dict(scores=draw(grid(*shape)), weights=draw(grid(*shape[:-1], high=32)))


@st.composite
def gate(draw):
    """Scores of either sign: the gate mixes whatever it is given."""
    shape = draw(shapes())
    return dict(
        scores=draw(grid(*shape, low=-8)),
        corrected=draw(grid(*shape, low=-8)),
        ratio=draw(ratios),
        power=draw(powers),
    )


@st.composite
def protected_mask(draw):
    """Any length, sinks and window, also longer ones than the sequence."""
    return dict(
        tokens=draw(st.integers(0, 300)),
        sinks=draw(st.integers(0, 8)),
        recent=draw(st.none() | st.integers(0, 300)),
    )


@st.composite
def ungated_refine(draw):
    """Layers of heads."""
    scores, protected = draw(layered())
    return dict(scores=scores, protected=protected, **draw(knobs()))


@st.composite
def hubkv_refine(draw):
    """Layers of heads at any compression."""
    return dict(**draw(ungated_refine()), ratio=draw(ratios), power=draw(powers))


@st.composite
def shift_scores(draw):
    """Scores of either sign."""
    return dict(scores=draw(grid(*draw(shapes()), low=-8, high=8)))


@st.composite
def head_budgets(draw):
    """A mean budget with room for every protected token."""
    scores, protected = draw(layered())
    lowest = 0 if protected is None else most_protected(protected)
    return dict(
        scores=scores,
        keep=draw(st.integers(lowest, scores.shape[-1])),
        rule=draw(st.sampled_from(["waterfill", "entropy", "selectivity", "hybrid"])),
        protected=protected,
        epsilon=draw(epsilons),
    )


def most_protected(protected: Tensor) -> int:
    """Return the least mean budget of a head that holds every layer's protected tokens."""
    if protected.numel() == 0:
        return 0
    return math.ceil(int(protected.sum((-2, -1)).max()) / protected.shape[-2])


__all__ = ["INPUTS", "REFUSALS"]

INPUTS = dict(
    selectivity=selectivity(),
    head_weights=head_weights(),
    calibrate=calibrate(),
    gate=gate(),
    protected_mask=protected_mask(),
    hubkv_refine=hubkv_refine(),
    shift_scores=shift_scores(),
    ungated_refine=ungated_refine(),
    head_budgets=head_budgets(),
)
