"""Rows of a batch that begin at different tokens."""

import torch
from hypothesis import strategies as st


@st.composite
def masks(draw, batch, tokens):
    """No mask, or one that is false on the left of each row, perhaps everywhere."""
    if draw(st.booleans()):
        return None
    rows = torch.Size(batch).numel()
    first = draw(st.lists(st.integers(0, tokens), min_size=rows, max_size=rows))
    return (torch.arange(tokens) >= torch.tensor(first).reshape(*batch, 1)).expand(*batch, tokens)


def rows(x):
    """Return `valid` of some inputs, whether it was given or not, as the number of real tokens."""
    *batch, _, tokens, _ = x["keys"].shape
    if x["valid"] is None:
        return torch.full(batch, tokens)
    return x["valid"].sum(-1)


batches = st.sampled_from([(), (2,), (0,)])
groups = st.sampled_from([1, 1, 2, 4])
