"""The neighbourhood of a source: GraphKV §4.3."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_equal
from spec_tests.inputs import INPUTS
from spec_tests.inputs.graphkv import neighbours


def rows(x, reached):
    """Every source with its edges, what it reaches, what is protected, and its graph's sources."""
    weights, sources, protected = x["weights"], x["sources"], x["protected"]
    if protected is None:
        protected = torch.zeros_like(weights[..., :1, :], dtype=torch.bool).any(-2)
    graphs = sources.shape[:-1].numel()
    shape = (graphs, *weights.shape[-2:])
    for graph in range(graphs):
        edges, ends = weights.reshape(shape)[graph], reached.reshape(shape)[graph]
        chosen = sources.reshape(graphs, -1)[graph].tolist()
        shut = protected.reshape(graphs, -1)[graph].tolist()
        for i, edge, end in zip(chosen, edges.tolist(), ends.tolist(), strict=True):
            yield i, edge, end, shut, chosen


@pytest.mark.spec("GraphKV-3")
@given(INPUTS["neighbours"])
def test_a_source_has_exactly_as_many_neighbours_as_asked_or_as_there_are(impl, x):
    for i, edge, end, shut, chosen in rows(x, impl.neighbours(**x)):
        barred = set(chosen) if x["spare_sources"] else {i}
        candidates = [j for j in range(len(edge)) if j not in barred and not shut[j]]
        assert sum(end) == min(x["count"], len(candidates))


@pytest.mark.spec("GraphKV-3")
@given(INPUTS["neighbours"])
def test_no_source_is_its_own_neighbour(impl, x):
    reached = impl.neighbours(**x)
    assert not reached.gather(-1, x["sources"][..., None]).any()


@pytest.mark.spec("GraphKV-3")
@given(neighbours(unprotected=False))
def test_no_protected_token_is_a_neighbour(impl, x):
    assert not (impl.neighbours(**x) & x["protected"][..., None, :]).any()


@pytest.mark.spec("GraphKV-3")
@given(INPUTS["neighbours"])
def test_a_spared_source_is_nobodys_neighbour(impl, x):
    reached = impl.neighbours(**x | dict(spare_sources=True))
    sources = x["sources"][..., None, :].expand(*reached.shape[:-1], -1)
    assert not reached.gather(-1, sources).any()


@pytest.mark.spec("GraphKV-3", "GraphKV-Alg2")
@given(INPUTS["neighbours"])
def test_neighbours_are_at_the_strongest_edges_the_first_of_equals_first(impl, x):
    for i, edge, end, shut, chosen in rows(x, impl.neighbours(**x)):
        barred = set(chosen) if x["spare_sources"] else {i}
        candidates = [j for j in range(len(edge)) if j not in barred and not shut[j]]
        best = sorted(candidates, key=lambda j: (-edge[j], j))[: x["count"]]
        assert [j for j in range(len(edge)) if end[j]] == sorted(best)


@pytest.mark.spec("GraphKV-1", "GraphKV-3")
@pytest.mark.parametrize("tokens", [5, 37, 129, 513])
@pytest.mark.parametrize("width", [3, 64, 100, 131])
@given(st.sampled_from([1, 3, 5]), st.booleans(), st.integers(0, 2**16))
def test_equal_keys_have_equal_edges(impl, tokens, width, sources, several, seed):
    generator = torch.Generator().manual_seed(seed)
    distinct = torch.randn(3 if several else 1, width, generator=generator)
    which = torch.randint(len(distinct), (tokens,), generator=generator)
    weights = impl.edges(distinct[which], torch.arange(sources))
    first = (which == which[:, None]).int().argmax(-1)
    assert_equal(weights, weights[:, first])


@pytest.mark.spec("GraphKV-1", "GraphKV-3")
@given(st.sampled_from([37, 513]), st.integers(64, 131), st.integers(20, 37))
def test_equal_keys_have_equal_edges_to_many_sources(impl, tokens, width, sources):
    generator = torch.Generator().manual_seed(width)
    keys = torch.randn(1, width, generator=generator).expand(tokens, width)
    weights = impl.edges(keys.contiguous(), torch.arange(sources))
    assert_equal(weights, weights[:, :1].expand(-1, tokens).contiguous())
