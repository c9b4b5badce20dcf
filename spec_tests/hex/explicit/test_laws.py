"""Lubotzky–Phillips–Sarnak graphs: HEX A.2."""

import pytest
import torch

from spec_tests.accuracy import assert_equal

TWO_SIDED = [(5, 13), (37, 13)]
ONE_SIDED = [(17, 13), (29, 13)]


@pytest.mark.spec("HEX-A.2b", "HEX-Def2")
@pytest.mark.parametrize(("prime", "modulus"), TWO_SIDED)
def test_the_bipartite_graph_is_regular_connected_and_ramanujan(impl, prime, modulus):
    mask = impl.lps_mask(prime, modulus)
    assert mask.shape == (modulus * (modulus**2 - 1) // 2,) * 2
    assert (mask.sum(0) == prime + 1).all()
    assert (mask.sum(1) == prime + 1).all()
    assert impl.is_connected(mask)
    assert impl.is_ramanujan(mask)


@pytest.mark.spec("HEX-A.2b", "HEX-Def2")
@pytest.mark.parametrize(("prime", "modulus"), ONE_SIDED)
def test_the_other_graph_is_symmetric_without_loops_and_ramanujan(impl, prime, modulus):
    adjacency = impl.lps_graph(prime, modulus)
    assert adjacency.shape == (modulus * (modulus**2 - 1) // 2,) * 2
    assert_equal(adjacency, adjacency.T)
    assert not adjacency.diagonal().any()
    assert (adjacency.sum(1) == prime + 1).all()
    # its double cover is connected, so it has an odd ring and is not bipartite
    assert impl.is_connected(adjacency)
    assert impl.is_ramanujan(adjacency)


@pytest.mark.spec("HEX-A.2b")
@pytest.mark.parametrize(("prime", "modulus"), TWO_SIDED)
def test_the_graph_looks_the_same_from_every_vertex(impl, prime, modulus):
    mask = impl.lps_mask(prime, modulus).float()
    shared = (mask @ mask.T).sort(1).values
    assert_equal(shared, shared[:1].expand_as(shared).contiguous())


@pytest.mark.spec("HEX-A.2b")
def test_the_graph_has_no_short_rings(impl):
    # a bipartite graph has even rings; a ring has more than 4 log_5 13 - log_5 4 > 5 edges: at
    # least 6
    mask = impl.lps_mask(5, 13).float()
    shared = mask @ mask.T - 6 * torch.eye(len(mask))
    assert shared.max() == 1
