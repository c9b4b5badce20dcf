"""Strategies for half-edges, and for graphs to repair."""

import numpy as np
import torch
from hypothesis import strategies as st

from spec_tests.strategies import Refusal, always

seeds = st.integers(0, 99)


@st.composite
def draw_graph_sizes(draw):
    """Tokens, channels and a token degree of some graph, biregular or not."""
    tokens, channels = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    return dict(tokens=tokens, channels=channels, token_degree=draw(st.integers(0, channels)))


@st.composite
def pairing(draw):
    """Inputs of `half_edge_pairing`."""
    return dict(**draw(draw_graph_sizes()), seed=draw(seeds), draw=draw(st.integers(0, 3)))


@st.composite
def multigraph(draw):
    """Randomly paired half-edges of a graph at most half full, so that swaps always exist."""
    tall, wide = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    parts = draw(st.integers(2, 6))
    degree = wide * draw(st.integers(0, parts // 2))
    generator = np.random.RandomState(draw(seeds))
    half_edges = generator.permutation(np.arange(parts * tall * degree) % (parts * wide))
    pairs = torch.from_numpy(half_edges).reshape(parts * tall, degree)
    return dict(pairs=pairs, channels=parts * wide, seed=draw(seeds), draw=draw(seeds))


@st.composite
def pieces(draw):
    """Inputs of `connecting_swaps`: disjoint rings and stars, with channels in any order."""
    parts, tall, wide = (draw(st.integers(1, most)) for most in (4, 5, 5))
    degree, step = draw(st.integers(0, wide)), draw(st.integers(0, 2))
    token = torch.arange(parts * tall)
    near = (step * token[:, None] + torch.arange(degree)) % wide
    names = np.random.RandomState(draw(seeds)).permutation(parts * wide)
    pairs = torch.from_numpy(names)[near + wide * (token[:, None] // tall)]
    return dict(pairs=pairs, channels=parts * wide, seed=draw(seeds), draw=draw(seeds))


@st.composite
def biadjacency(draw):
    """Inputs of `biadjacency`, repeated edges included."""
    x = draw(multigraph())
    return dict(pairs=x["pairs"], channels=x["channels"])


INPUTS = dict(
    half_edge_pairing=pairing(),
    double_edge_swaps=multigraph(),
    connecting_swaps=pieces(),
)

DRAWN = dict.fromkeys(("half_edge_pairing", "double_edge_swaps", "connecting_swaps"), always)

ring = torch.tensor([[0, 1], [1, 2], [2, 0]])
bad_pairs = [
    Refusal("pairs", lambda pairs: pairs - 1, ValueError, "in [0, 2]"),
    Refusal("pairs", lambda pairs: pairs + 1, ValueError, "in [0, 2]"),
]

REFUSALS = dict(
    half_edge_pairing=(
        dict(tokens=3, channels=3, token_degree=2, seed=0, draw=0),
        [Refusal("token_degree", 4, ValueError, "in [0, 3]")],
    ),
    double_edge_swaps=(dict(pairs=ring, channels=3, seed=0, draw=0), bad_pairs),
    connecting_swaps=(dict(pairs=ring, channels=3, seed=0, draw=0), bad_pairs),
    biadjacency=(dict(pairs=ring, channels=3), bad_pairs),
)
