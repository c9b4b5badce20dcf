"""Graphs for the tests: vectors whose cosines are exact, positions, sizes that are rarely 0.

What jumps (sources, neighbours, bins) is computed from `lattice` vectors: their lengths are powers
of two, so every cosine is a multiple of 1/16 whichever way it is computed, and many tie.
"""

import torch
from hypothesis import strategies as st

# the empty and the lone are there, and rare: most examples have something to compare
few = st.sampled_from([*range(3, 9), *range(3, 9), 2, 1, 0])
leads = st.sampled_from([(), (3,), (2, 2), (1,), (), (3,), (2, 2), (0, 2)])


@st.composite
def lattice(draw, *shape, zero=True):
    """Vectors with 0, 1, 4 or 16 entries of one magnitude, a power of two, and random signs."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    lead, width = shape[:-1], shape[-1]
    sizes = torch.tensor([0] * zero + [s for s in (1, 1, 4, 4, 16, 16) if s <= width])
    size = sizes[torch.randint(len(sizes), lead, generator=generator)]
    place = torch.rand(shape, generator=generator).argsort(-1).argsort(-1)
    sign = torch.randint(0, 2, shape, generator=generator) * 2.0 - 1
    magnitude = 2.0 ** torch.randint(-1, 2, lead, generator=generator)
    return torch.where(place < size[..., None], sign * magnitude[..., None], 0.0)


@st.composite
def picks(draw, count, *lead, size):
    """Positions of `size` different tokens among `count`, in any order, for each of `lead`."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    return torch.rand((*lead, count), generator=generator).argsort(-1)[..., :size]


def up_to(most):
    """Return a strategy for a number in [0, most], 0 the rarest."""
    return st.sampled_from([*range(1, most + 1), *range(1, most + 1), 0])
