"""Masks for batch rows that begin at different tokens."""

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from spec_tests.strategies import Refusal

# The most useful values come first, where Hypothesis draws most often; empty axes are rare.
batches = st.sampled_from([(2,), (), (2,), (2,), (), (2,), (2,), (0,)])
groups = st.sampled_from([2, 1, 4, 1])
key_heads = st.sampled_from([2, 1, 2, 1, 0])
lengths = st.sampled_from([7, 6, 8, 5, 7, 6, 8, 5, 4, 3, 2, 1, 0])


@st.composite
def masks(draw, batch, tokens):
    """No mask, or one that is false on the left of each row, sometimes everywhere.

    Most rows begin one or two tokens apart. The mask comes from a seed, since Hypothesis would draw
    equal starts too often.
    """
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    rows = torch.Size(batch).numel()
    if (kind := random.integers(6)) == 0:
        return None
    first = random.integers(0, tokens, rows, endpoint=True)
    if kind > 1:
        first = random.permutation(random.integers(2) + random.integers(1, 3) * np.arange(rows))
    return (torch.arange(tokens) >= torch.tensor(first).reshape(*batch, 1)).expand(*batch, tokens)


def with_last_token_padded(valid: Tensor) -> Tensor:
    """Return a row whose last token is padding."""
    bad = valid.clone()
    bad[..., -1] = False
    return bad


bad_padding = Refusal("valid", with_last_token_padded, ValueError, "on the left")
