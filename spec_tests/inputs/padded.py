"""Rows of a batch that begin at different tokens."""

import torch
from hypothesis import strategies as st

# What says most stands first, where Hypothesis looks most often: empty axes are tried, but rarely.
batches = st.sampled_from([(2,), (), (2,), (), (0,)])
groups = st.sampled_from([2, 1, 4, 1])
key_heads = st.sampled_from([2, 1, 2, 1, 0])
lengths = st.sampled_from([7, 6, 8, 5, 7, 6, 8, 5, 4, 3, 2, 1, 0])
mostly = st.sampled_from([True, True, False])


@st.composite
def masks(draw, batch, tokens):
    """No mask, or one that is false on the left of each row, perhaps everywhere."""
    if not draw(mostly):
        return None
    rows = torch.Size(batch).numel()
    place = st.sampled_from([min(1, tokens), 0, min(2, tokens), *range(tokens + 1)])
    first = draw(st.lists(place, min_size=rows, max_size=rows))
    return (torch.arange(tokens) >= torch.tensor(first).reshape(*batch, 1)).expand(*batch, tokens)


def rows(x):
    """Return `valid` of some inputs, whether it was given or not, as the number of real tokens."""
    *batch, _, tokens, _ = x["keys"].shape
    if x["valid"] is None:
        return torch.full(batch, tokens)
    return x["valid"].sum(-1)
