"""Strategies for orders of picks."""

import torch
from hypothesis import strategies as st

from spec_tests.hubkv.importance_locality.strategies import lengths
from spec_tests.strategies import Refusal, grid, heads, last_element_replacer, tokens


@st.composite
def segment_coverage(draw):
    """Any positions in any order, with repetitions; sometimes more segments than tokens."""
    shape, count = (*draw(heads), draw(tokens)), draw(lengths)
    codes = draw(grid(*shape, low=0, high=count - 1, scale=1))
    return dict(order=codes.long(), tokens=count, segments=draw(st.integers(1, 30)))


@st.composite
def uniform_spread(draw):
    """Inputs with at most as many picks as tokens."""
    count = draw(st.integers(0, 200))
    return dict(tokens=count, picks=draw(st.integers(0, count)))


# every seed that NumPy accepts
INPUTS = dict(random_order=dict(tokens=st.integers(0, 200), seed=st.integers(0, 2**32 - 1)))

GOOD = dict(random_order=dict(tokens=4, seed=0))
REFUSALS = dict(
    segment_coverage=(
        dict(order=torch.tensor([0, 3, 1]), tokens=4, segments=2),
        [Refusal("order", last_element_replacer(4), ValueError, "[0, 3]")],
    ),
    uniform_spread=(dict(tokens=4, picks=2), [Refusal("picks", 5, ValueError, "[0, 4]")]),
)
