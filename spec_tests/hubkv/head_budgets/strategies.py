"""Strategies for layers of heads, and for budgets that hold the protected tokens."""

import math

import torch
from hypothesis import strategies as st
from torch import Tensor

import reference
from spec_tests.from_signature import draw_choices
from spec_tests.hubkv.head_calibration.strategies import epsilons, mask, scores
from spec_tests.hubkv.refine.strategies import scores_and_protected
from spec_tests.strategies import CROWD, Refusal


@st.composite
def head_budgets(draw):
    """Inputs whose mean budget holds every protected token."""
    scores, protected = draw(scores_and_protected())
    lowest = 0 if protected is None else most_protected(protected)
    return dict(
        scores=scores,
        keep=draw(st.integers(lowest, scores.shape[-1])),
        protected=protected,
        epsilon=draw(epsilons),
        **draw(draw_choices(reference.head_budgets)),
    )


def most_protected(protected: Tensor) -> int:
    """Return the least mean budget of a head that holds the protected tokens of every layer."""
    if protected.numel() == 0:
        return 0
    return math.ceil(int(protected.sum((-2, -1)).max()) / protected.shape[-2])


# seven of the twelve best shares are those of the crowd
CROWDED = dict(scores=torch.stack([CROWD, torch.ones(12)]), keep=6, rule="waterfill")
CORNERS = dict(head_budgets=[CROWDED])

REFUSALS = dict(
    head_budgets=(
        dict(scores=scores, keep=2, rule="entropy", protected=mask, epsilon=1e-6),
        [
            Refusal("keep", 5, ValueError, "[0, 4]"),
            Refusal("keep", 1, ValueError, ">= 2 to hold the 4 protected entries"),
        ],
    ),
)
