"""Lubotzky–Phillips–Sarnak graphs: HEX A.2."""

from itertools import product

import pytest
import torch

from spec_tests.accuracy import assert_equal

MASKS, GRAPHS = (5, 37), (17, 29)
"""Primes that are no squares modulo 13, and primes that are."""


@pytest.mark.spec("HEX-A.2b", "HEX-Def2")
@pytest.mark.parametrize(
    ("name", "prime"), [*product(["lps_mask"], MASKS), *product(["lps_graph"], GRAPHS)]
)
def test_the_graph_is_regular_connected_and_ramanujan(impl, name, prime):
    graph = getattr(impl, name)(prime, 13)
    assert graph.shape == (13 * (13**2 - 1) // 2,) * 2
    assert (graph.sum(0) == prime + 1).all()
    assert (graph.sum(1) == prime + 1).all()
    # the double cover of a graph is connected, so it has an odd ring and is not bipartite
    assert impl.is_connected(graph)
    assert impl.is_ramanujan(graph)


@pytest.mark.spec("HEX-A.2b")
@pytest.mark.parametrize("prime", GRAPHS)
def test_the_graph_of_a_square_is_symmetric_without_loops(impl, prime):
    adjacency = impl.lps_graph(prime, 13)
    assert_equal(adjacency, adjacency.T)
    assert not adjacency.diagonal().any()


@pytest.mark.spec("HEX-A.2b")
@pytest.mark.parametrize("prime", MASKS)
def test_the_graph_looks_the_same_from_every_vertex(impl, prime):
    mask = impl.lps_mask(prime, 13).float()
    shared = (mask @ mask.T).sort(1).values
    assert_equal(shared, shared[:1].expand_as(shared).contiguous())


@pytest.mark.spec("HEX-A.2b")
def test_the_graph_has_no_short_rings(impl):
    # a bipartite graph has even rings; a ring has more than 4 log_5 13 - log_5 4 > 5 edges: at
    # least 6
    mask = impl.lps_mask(5, 13).float()
    shared = mask @ mask.T - 6 * torch.eye(len(mask))
    assert shared.max() == 1
