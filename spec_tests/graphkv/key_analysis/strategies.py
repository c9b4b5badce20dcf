"""Strategies for keys to analyse."""

import torch
from hypothesis import strategies as st

from spec_tests.graphkv.graph.strategies import few, lattice, leads, vectors
from spec_tests.strategies import Refusal, gaussian_tensor, grid


@st.composite
def keys(draw, numbers=lattice):
    """Keys of a few tokens."""
    return dict(keys=draw(numbers(*draw(leads), draw(few), 4)))


@st.composite
def cosine_distribution(draw):
    """Keys whose cosines are never on the edge of two bins."""
    return draw(keys()) | dict(bins=draw(st.sampled_from([1, 2, 7, 50])))


@st.composite
def principal_components(draw):
    """Keys whose spread along each channel is a quarter of that along the channel before."""
    count = draw(st.sampled_from([0, 1, 2, 4, 8]))
    spread = 4.0 ** -torch.arange(4)
    return dict(
        keys=draw(grid(*draw(leads), count, 4, low=-8, high=8, scale=1.0)) * spread,
        components=draw(st.integers(1, 4)),
    )


INPUTS = dict(
    cosine_matrix=st.sampled_from([lattice, gaussian_tensor]).flatmap(keys),
    kv_bytes=dict(
        tokens=st.integers(0, 10**6),
        layers=st.integers(1, 80),
        heads=st.integers(1, 32),
        width=st.integers(1, 256),
        element_bytes=st.sampled_from([1, 2, 4]),
    ),
)

GOOD = dict(
    cosine_matrix=dict(keys=vectors),
    cosine_distribution=dict(keys=vectors, bins=4),
    kv_bytes=dict(tokens=128, layers=32, heads=8, width=128, element_bytes=2),
)

REFUSALS = dict(
    principal_components=(
        dict(keys=vectors, components=2),
        [Refusal("components", 4, ValueError, "[1, 3]")],
    ),
)
