"""Strategies for rows of columns."""

import torch
from hypothesis import strategies as st

from spec_tests.hex.spectrum.strategies import any_mask, full
from spec_tests.strategies import Refusal


@st.composite
def rows(draw):
    """Inputs of `from_csr`."""
    mask = draw(any_mask())["mask"]
    counts = torch.cat([torch.zeros(1, dtype=torch.int64), mask.sum(1).cumsum(0)])
    return dict(offsets=counts, columns=mask.nonzero()[:, 1], channels=mask.shape[1])


INPUTS = dict(to_csr=any_mask(), from_csr=rows())

REFUSALS = dict(
    from_csr=(
        dict(offsets=torch.tensor([0, 1, 3]), columns=torch.tensor([2, 0, 1]), channels=3),
        [
            Refusal("offsets", lambda offsets: offsets.flip(0), ValueError, "ascend"),
            Refusal("offsets", lambda offsets: offsets[:2], ValueError, "ascend"),
            Refusal("offsets", lambda offsets: offsets[:0], ValueError, "ascend"),
            Refusal("columns", lambda columns: columns + 1, ValueError, "in [0, 2]"),
        ],
    ),
)

GOOD = dict(to_csr=dict(mask=full))
