"""Strategies for matrices of a known rank."""

import numpy as np
import torch
from hypothesis import strategies as st

from spec_tests.quantizers.kivi.strategies import keys, seeds
from spec_tests.strategies import gaussian_tensor

matrices = st.sampled_from([(4, 3), (6, 2), (3, 4), (5, 4), (3, 3), (1, 2), (0, 3), (4, 0)])


def up_to(most):
    """Return a strategy for the numbers from 0 to `most`, with equal probability."""
    return st.sampled_from(range(most, -1, -1))


def one_channel_per_token(shape, most, random):
    """Give each token of each head one channel, and each channel at most `most` tokens."""
    tokens, width = shape[-2:]
    mask = np.zeros(shape, bool)
    for head in np.ndindex(*shape[:-2]):
        channels = random.permutation(width)
        for token in range(min(tokens, most * width)):
            mask[(*head, token, channels[token % width])] = True
    return mask


@st.composite
def low_rank(draw):
    """Matrices with orthogonal columns, matrices of zeros, or Gaussian ones."""
    random = np.random.default_rng(draw(seeds))
    shape = (*draw(st.sampled_from([(), (2,), (2, 2), (0, 2)])), *draw(matrices))
    kind = draw(st.sampled_from(["orthogonal", "zero", "any"]))
    marks = one_channel_per_token(shape, shape[-2], random)
    x = torch.from_numpy(marks * random.choice([-1.0, 1.0], shape)).float()
    ranks = marks.any(-2).sum(-1)
    most = int(ranks.min()) if ranks.size else 4
    if kind == "any":
        x, most = draw(gaussian_tensor(*shape)), min(shape[-2:])
    return dict(
        x=x * 0 if kind == "zero" else x,
        rank=draw(up_to(most)),
        rounds=draw(st.integers(1, 4)),
        seed=draw(st.integers(0, 3)),
    )


def is_partial(x, rank):
    """Whether a correction has a lower rank than its matrix: its result depends on the start.

    At full rank, and at rank 0, every start gives the same product.
    """
    return 0 < rank < int(torch.linalg.matrix_rank(x.double()).amax()) if x.numel() else False


DRAWN = dict(low_rank=lambda x: is_partial(x["x"], x["rank"]))

# nothing to decompose
CORNERS = dict(low_rank=[dict(x=torch.zeros(2, 3, 4), rank=2, rounds=2, seed=0)])

GOOD = dict(low_rank=dict(x=keys, rank=2, rounds=3, seed=0))
