"""Strategies for small graphs and sets of their vertices."""

import torch
from hypothesis import strategies as st

from spec_tests.hex.spectrum.strategies import full
from spec_tests.strategies import Refusal, booleans


@st.composite
def graph(draw, most=7):
    """A small symmetric graph, loops included."""
    size = draw(st.integers(2, most))
    half = draw(booleans(size, size))
    return dict(adjacency=half | half.T)


@st.composite
def gap(draw):
    """Inputs of `spectral_gap`."""
    flags = st.booleans()
    return dict(**draw(graph()), bipartite=draw(flags), two_sided=draw(flags))


@st.composite
def graph_and_subset(draw):
    """A graph and a non-empty set of its vertices."""
    x = draw(graph())
    vertices = len(x["adjacency"])
    members = draw(st.sets(st.integers(0, vertices - 1), min_size=1))
    subset = torch.zeros(vertices, dtype=torch.bool)
    subset[sorted(members)] = True
    return dict(**x, subset=subset)


INPUTS = dict(
    spectral_gap=gap(),
    vertex_expansion=graph_and_subset(),
    cheeger_constant=graph(),
    conductance=graph(),
)

bad_graph = [
    Refusal("adjacency", torch.ones(4, 4).triu() > 0, ValueError, "symmetric"),
    Refusal("adjacency", lambda graph: graph[:, :3], ValueError, "square"),
]
too_few = Refusal("adjacency", lambda graph: graph[:1, :1], ValueError, "vertices >= 2")
wrong_number = [
    Refusal("adjacency", lambda graph: graph[:1, :1], ValueError, "in [2, 20]"),
    Refusal("adjacency", torch.ones(21, 21) > 0, ValueError, "in [2, 20]"),
]

REFUSALS = dict(
    spectral_gap=(dict(adjacency=full, bipartite=False, two_sided=False), [*bad_graph, too_few]),
    vertex_expansion=(
        dict(adjacency=full, subset=full[0]),
        [
            *bad_graph,
            Refusal("subset", lambda subset: subset & False, ValueError, "true somewhere"),
        ],
    ),
    cheeger_constant=(dict(adjacency=full), [*bad_graph, *wrong_number]),
    conductance=(dict(adjacency=full), [*bad_graph, *wrong_number]),
)
