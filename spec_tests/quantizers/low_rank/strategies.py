"""Matrices of a rank that is known."""

import numpy as np
import torch
from hypothesis import strategies as st

from spec_tests.quantizers.kivi.strategies import keys, seeds
from spec_tests.strategies import gaussian_tensor

matrices = st.sampled_from([(4, 3), (6, 2), (3, 4), (5, 4), (3, 3), (1, 2), (0, 3), (4, 0)])


def up_to(most):
    """Numbers up to a greatest one, all as often."""
    return st.sampled_from(range(most, -1, -1))


def one_channel_per_token(shape, most, random):
    """Give each token of each head one channel, no channel more than `most` tokens."""
    tokens, width = shape[-2:]
    mask = np.zeros(shape, bool)
    for head in np.ndindex(*shape[:-2]):
        channels = random.permutation(width)
        for token in range(min(tokens, most * width)):
            mask[(*head, token, channels[token % width])] = True
    return mask


@st.composite
def low_rank(draw):
    """Matrices of orthogonal columns, of zeros, or any."""
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
    """Whether a correction has fewer columns than a matrix has directions: its start counts.

    At the whole rank, or none, every start leads to the same product.
    """
    return 0 < rank < int(torch.linalg.matrix_rank(x.double()).amax()) if x.numel() else False


DRAWN = dict(low_rank=lambda x: is_partial(x["x"], x["rank"]))

# nothing to decompose
CORNERS = dict(low_rank=[dict(x=torch.zeros(2, 3, 4), rank=2, rounds=2, seed=0)])

GOOD = dict(low_rank=dict(x=keys, rank=2, rounds=3, seed=0))
