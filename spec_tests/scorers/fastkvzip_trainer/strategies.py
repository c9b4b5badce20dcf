"""Strategies for a few steps of training."""

import torch
from hypothesis import strategies as st

from spec_tests.scorers.fastkvzip.strategies import hidden, nowhere, scores, valid
from spec_tests.scorers.padding_masks import bad_padding
from spec_tests.strategies import Refusal, always, gaussian_tensor, grid


@st.composite
def train_fastkvzip(draw):
    """Inputs of a few steps on a few tokens."""
    batch, tokens, width = draw(st.sampled_from([(), (2,)])), draw(st.integers(1, 4)), 2
    valid = torch.arange(tokens) >= draw(st.integers(0, tokens - 1))
    valid = valid.expand(*batch, -1).contiguous()
    return dict(
        hidden=draw(gaussian_tensor(*batch, tokens, width)),
        targets=draw(grid(*batch, draw(st.integers(1, 2)), tokens)),
        group=draw(st.integers(1, 2)),
        steps=draw(st.integers(0, 3)),
        rate=0.2,
        momentum=draw(st.sampled_from([0.0, 0.9])),
        sample=draw(st.sampled_from([9, 1, 2])),
        dim=2,
        learned=2,
        seed=draw(st.integers(0, 3)),
        epsilon=2.0**-10,
        valid=draw(st.sampled_from([None, valid])),
        spread=draw(st.sampled_from([0.0, 0.5])),
    )


DRAWN = dict(train_fastkvzip=always)

REFUSALS = dict(
    train_fastkvzip=(
        dict(hidden=hidden, targets=scores, group=2, steps=1, rate=0.2, momentum=0.9, sample=2,
             dim=2, learned=2, seed=0, epsilon=1e-6, valid=valid, spread=1.0),
        [
            Refusal("hidden", lambda x: x[:, :0], ValueError, "not be empty"),
            Refusal("targets", lambda t: t[:0], ValueError, "not be empty"),
            bad_padding,
            nowhere,
        ],
    ),
)  # fmt: skip
