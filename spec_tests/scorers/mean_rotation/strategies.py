"""Strategies for frequencies and positions."""

import torch
from hypothesis import strategies as st

from spec_tests.scorers.padding_masks import batches
from spec_tests.scorers.query_statistics.strategies import counts
from spec_tests.strategies import Refusal, grid


@st.composite
def mean_rotation(draw):
    """Inputs with any frequencies, and one position for all rows or one each."""
    batch = draw(batches)
    shared, by_row = draw(st.integers(0, 9)), draw(counts(batch, 9))
    return dict(
        frequencies=draw(grid(draw(st.integers(0, 3)))),
        start=draw(st.sampled_from([shared, by_row])),
        future=draw(st.sampled_from([1, 2, 5])),
    )


REFUSALS = dict(
    mean_rotation=(
        dict(frequencies=torch.tensor([1.0, 0.0]), start=torch.tensor([3]), future=2),
        [Refusal("start", 2.0, TypeError, "integer")],
    )
)
