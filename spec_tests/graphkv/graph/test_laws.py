"""The sparse similarity graph: GraphKV §4.2, §4.3, §6.1, §6.2, §7.1 and Algorithm 1."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import reference
from spec_tests.accuracy import assert_as_accurate, assert_at_most, assert_close, assert_equal
from spec_tests.graphkv.graph import oracle
from spec_tests.graphkv.graph.strategies import edges, kinds, lattice, picks
from spec_tests.hubkv.discount.oracle import fractions
from spec_tests.inputs import INPUTS
from spec_tests.strategies import CROWD, gaussian_tensor, grid


@st.composite
def nodes(draw, numbers=lattice, width=4):
    """Keys of one head and some of its tokens as sources."""
    count = draw(st.integers(1, 8))
    size = draw(st.integers(1, count))
    return dict(keys=draw(numbers(count, width)), sources=draw(picks(count, size=size)))


@st.composite
def scored_nodes(draw):
    """Keys whose lengths are exact, scores with ties, a number of sources."""
    count = draw(st.integers(1, 8))
    return draw(lattice(count, 4)), draw(grid(count, high=6)), draw(st.integers(0, count))


@pytest.mark.spec("GraphKV-6.1")
@given(st.integers(0, 600), st.integers(1, 100), st.data())
def test_sources_are_the_share_of_the_budget_rounded_down(impl, keep, percent, data):
    window = data.draw(st.integers(0, keep))
    expected = max(1, percent * (keep - window) // 100)
    assert impl.source_count(keep, percent / 100, window) == expected


@pytest.mark.spec("GraphKV-2")
@given(INPUTS["source_tokens"])
def test_sources_are_the_best_content_tokens_in_order_the_first_of_equals_first(impl, x):
    sources, scores, count = impl.source_tokens(**x), x["scores"], x["scores"].shape[-1]
    aside = x["protected"]
    aside = torch.zeros_like(scores, dtype=torch.bool) if aside is None else aside
    assert sources.shape == (*scores.shape[:-1], x["count"])
    rows = [t.flatten(0, -2) if t.ndim > 1 else t[None] for t in (sources, scores, aside)]
    for chosen, score, shut in zip(*(row.tolist() for row in rows), strict=True):
        content = [i for i in range(count) if not shut[i]]
        assert chosen == sorted(content, key=lambda i: (-score[i], i))[: x["count"]]


@pytest.mark.spec("GraphKV-1", "GraphKV-Alg1")
@given(scored_nodes())
def test_the_graph_is_that_of_algorithm_1(impl, x):
    keys, scores, count = x
    sources = impl.source_tokens(scores, count)
    weights = impl.edges(keys, sources)
    expected = oracle.algorithm_1(fractions(keys), fractions(scores), count)
    assert sources.tolist() == expected[0]
    for row, i in enumerate(expected[0]):
        for j in range(len(scores)):
            if j != i:
                assert weights[row, j].item() == expected[1][i, j]


@pytest.mark.spec("GraphKV-1")
@given(nodes(gaussian_tensor, 48), st.sampled_from([torch.float32, torch.bfloat16, torch.float64]))
def test_no_edge_leaves_the_interval_from_minus_1_to_1(impl, x, dtype):
    keys = x["keys"].to(dtype)
    doubled = torch.cat([keys, -keys])
    assert_at_most(impl.edges(doubled, x["sources"]).abs(), torch.ones(()))


@pytest.mark.spec("GraphKV-1")
@given(nodes(grid), st.data())
def test_a_scaled_key_has_the_same_edges(impl, x, data):
    factors = data.draw(grid(len(x["keys"]), 1, low=1, high=4096))
    scaled = impl.edges(x["keys"] * factors, x["sources"])
    assert_as_accurate(scaled, reference.edges, x)


@pytest.mark.spec("GraphKV-7.1")
@given(nodes(), kinds, st.data())
def test_each_kind_compares_the_vectors_it_names_source_first(impl, x, kind, data):
    shape = x["keys"].shape
    ends = {"k": x["keys"], "q": data.draw(lattice(*shape)), "v": data.draw(lattice(*shape))}
    weights = impl.edges(**x, kind=kind, queries=ends["q"], values=ends["v"])
    both = torch.cat([ends[kind[0]], ends[kind[1]]])
    assert_equal(weights, impl.edges(both, x["sources"])[:, len(x["keys"]) :])


@pytest.mark.spec("GraphKV-7.1")
@given(st.integers(1, 3), st.integers(1, 3), st.sampled_from(["qk", "qq"]), st.data())
def test_grouped_queries_count_as_their_mean(impl, head_count, pairs, kind, data):
    mean = data.draw(lattice(head_count, 5, 4))
    apart = data.draw(grid(head_count, pairs, 5, 4, low=-4, high=4, scale=1 / 4))
    grouped = torch.cat([mean[:, None] + apart, mean[:, None] - apart], 1).flatten(0, 1)
    x = dict(keys=data.draw(lattice(head_count, 5, 4)), kind=kind)
    x["sources"] = data.draw(picks(5, head_count, size=3))
    expected = impl.edges(**x, queries=mean)
    assert_equal(impl.edges(**x, queries=grouped), expected)


@pytest.mark.spec("GraphKV-1")
@given(edges())
def test_clamping_replaces_negative_edges_by_0(impl, x):
    free, clamped = impl.edges(**x | dict(clamp=False)), impl.edges(**x | dict(clamp=True))
    assert_equal(clamped, torch.where(free > 0, free, torch.zeros_like(free)))


@pytest.mark.spec("GraphKV-6.2")
@given(st.integers(0, 20), st.integers(0, 24_000))
def test_each_full_thousand_of_tokens_adds_a_neighbour_up_to_those_set_beforehand(
    impl, predefined, length
):
    reached = [1000 * number <= length for number in range(1, predefined + 1)]
    assert impl.neighbour_count(predefined, length) == sum(reached)


def rows(x, reached):
    """Yield each source, its edges, its neighbours, the protected tokens, and all sources."""
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


@pytest.mark.spec("GraphKV-3", "GraphKV-Alg2")
@given(INPUTS["neighbours"])
@example(
    dict(
        weights=CROWD[None], sources=torch.tensor([0]), count=4, protected=None, spare_sources=False
    )
)
def test_neighbours_are_at_the_strongest_edges_the_first_of_equals_first(impl, x):
    for i, edge, end, shut, chosen in rows(x, impl.neighbours(**x)):
        barred = set(chosen) if x["spare_sources"] else {i}
        candidates = [j for j in range(len(edge)) if j not in barred and not shut[j]]
        best = sorted(candidates, key=lambda j: (-edge[j], j))[: x["count"]]
        assert [j for j in range(len(edge)) if end[j]] == sorted(best)


@pytest.mark.spec("GraphKV-1", "GraphKV-3")
@pytest.mark.parametrize("sources", [1, 3, 5, 20, 37])
@pytest.mark.parametrize("width", [3, 64, 100, 131])
@settings(max_examples=30)
@given(st.sampled_from([37, 129, 513]), st.booleans(), st.integers(0, 2**16))
def test_equal_keys_have_equal_edges(impl, width, sources, tokens, several, seed):
    generator = torch.Generator().manual_seed(seed)
    distinct = torch.randn(3 if several else 1, width, generator=generator)
    which = torch.randint(len(distinct), (tokens,), generator=generator)
    weights = impl.edges(distinct[which], torch.arange(sources))
    first = (which == which[:, None]).int().argmax(-1)
    others = weights[:, first]
    assert_close(weights, others)
    if impl.ours:  # ties need exact equality: a matrix product may round each column differently
        assert_equal(weights, others)
