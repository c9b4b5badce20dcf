"""Components of a mask's bipartite graph: HEX §3.2, A.3."""

import pytest
import torch
from hypothesis import example, given

from spec_tests.accuracy import assert_equal
from spec_tests.hex.spectrum.strategies import any_mask
from spec_tests.inputs import INPUTS


@pytest.mark.spec("HEX-3.2a")
@given(INPUTS["bipartite_adjacency"])
def test_tokens_touch_channels_alone_and_both_ways(impl, x):
    mask = x["mask"]
    adjacency = impl.bipartite_adjacency(mask)
    tokens = mask.shape[0]
    assert_equal(adjacency[:tokens, tokens:].contiguous(), mask)
    assert_equal(adjacency, adjacency.T)
    assert not adjacency[:tokens, :tokens].any()
    assert not adjacency[tokens:, tokens:].any()


@pytest.mark.spec("HEX-A.3a")
@given(any_mask(least=1))
@example(x=dict(mask=torch.block_diag(torch.ones(2, 2), torch.ones(2, 2)) > 0))
def test_a_graph_hangs_together_where_walks_reach_everything(impl, x):
    adjacency = impl.bipartite_adjacency(x["mask"]).double()
    vertices = len(adjacency)
    reached = torch.matrix_power(adjacency + torch.eye(vertices, dtype=torch.float64), vertices) > 0
    assert impl.is_connected(x["mask"]) == bool(reached.all())
    # each component is one row of the reachability relation
    assert impl.component_count(x["mask"]) == len(reached.unique(dim=0))
