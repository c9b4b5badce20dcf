"""GraphKV end to end: §4, §6.1, §7.1 and §7.2."""

from functools import partial
from itertools import product

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import reference
from spec_tests.accuracy import (
    assert_as_accurate,
    assert_close,
    assert_equal,
    assert_rounded_once,
)
from spec_tests.graphkv.decay.strategies import strengths
from spec_tests.graphkv.graph.strategies import lattice, up_to
from spec_tests.graphkv.refine.strategies import graphkv_refine, lengthened
from spec_tests.inputs import INPUTS
from spec_tests.strategies import gaussian_tensor, grid, importance

LEAD = ("scores", "keys", "protected", "queries", "values")

# random settings rarely combine so that every one of them matters
reaching = dict(batch=(2,), exclude_window=False, spare_sources=False)
focuses = dict(
    anything={},
    decay=dict(signal="decay", rounds=2, **reaching),
    rule=dict(signal="decay", rule="sum", **reaching),
    enhance=dict(signal="enhance", rounds=2, **reaching),
    queries=dict(kind="qk", signal="decay", rounds=1, grouped=True, **reaching),
)
every_focus = pytest.mark.parametrize("focus", focuses)
layer_or_head = pytest.mark.parametrize("per_head", [False, True], ids=["layer", "head"])
one_edge = dict(per_head=True, signal="evict", rounds=1, count=1, fraction=0.5)
beside_two = dict(
    scores=torch.arange(12.0, 0, -1)[None], protected=torch.arange(12)[None] < 2, keep=10
)
in_pairs = torch.cat([torch.zeros(2, 5), torch.eye(5), torch.eye(5)])[None]


def part(x, place):
    """Return the inputs at one index of the first axis."""
    return {k: v[place] if k in LEAD and v is not None else v for k, v in x.items()}


@pytest.mark.spec("GraphKV-4.1")
@given(INPUTS["concatenate_heads"])
def test_a_row_holds_the_heads_of_a_token_side_by_side(impl, x):
    rows, vectors = impl.concatenate_heads(**x), x["vectors"]
    width = vectors.shape[-1]
    assert rows.shape[-1] == vectors.shape[-3] * width
    for head in range(vectors.shape[-3]):
        own = rows[..., head * width : (head + 1) * width]
        assert_equal(own, vectors[..., head, :, :])


@pytest.mark.spec("GraphKV-4.1", "GraphKV-5", "GraphKV-6.1")
@given(st.integers(1, 8), st.integers(0, 8), st.sampled_from([0.1, 0.3, 1.0]), st.data())
def test_a_layer_is_one_graph_over_its_heads(impl, keep, count, fraction, data):
    scores = data.draw(grid(4, 8))
    keys = data.draw(lattice(8, 16)).unflatten(-1, (4, 4)).movedim(-2, -3)
    mean, rows = scores.mean(0), impl.concatenate_heads(keys)
    sources = impl.source_tokens(mean, impl.source_count(keep, fraction))
    weights = impl.edges(rows, sources)
    reached = impl.neighbours(weights, sources, count)
    expected = impl.decay(mean, weights, reached).expand(4, 8).contiguous()
    refined = impl.graphkv_refine(scores, keys, keep, count, fraction=fraction)
    assert_close(refined, expected, magnitude(mean, weights, reached))


@pytest.mark.spec("GraphKV-4.1")
@given(graphkv_refine(per_head=False, exclude_window=False), st.data())
def test_a_layer_keeps_as_many_rows_of_keys_and_values_as_its_budget(impl, x, data):
    keep = data.draw(up_to(x["scores"].shape[-1]))
    kept = impl.retain(impl.graphkv_refine(**x | dict(keep=keep)), keep=keep)
    cache = impl.evict(x["keys"], x["values"], kept)
    length = keep if kept.shape[:-1].numel() else 0  # a batch of no rows has kept nothing
    for whole, part in ((x["keys"], cache.keys), (x["values"], cache.values)):
        rows, left = impl.concatenate_heads(whole), impl.concatenate_heads(part)
        assert_equal(left, rows[kept[..., 0, :]].reshape(*rows.shape[:-2], length, rows.shape[-1]))


@pytest.mark.slow_interpreted
@pytest.mark.spec("GraphKV-4.1")
@given(graphkv_refine(unprotected=False, per_head=True))
def test_a_graph_of_its_own_makes_a_head_independent_of_the_others(impl, x):
    refined = impl.graphkv_refine(**x)
    group = x["queries"].shape[-3] // x["keys"].shape[-3]
    for head in range(x["keys"].shape[-3]):
        one = slice(head, head + 1)
        alone = {name: x[name][..., one, :] for name in ("scores", "protected")}
        alone |= {name: x[name][..., one, :, :] for name in ("keys", "values")}
        alone["queries"] = x["queries"][..., head * group : (head + 1) * group, :, :]
        assert_equal(refined[..., one, :], impl.graphkv_refine(**x | alone))


@pytest.mark.spec("GraphKV-4.1")
@settings(max_examples=150)  # rows rarely differ in their number of sources
@given(graphkv_refine(unprotected=False, batch=(3,)))
def test_a_batch_is_its_rows_one_by_one(impl, x):
    refined = impl.graphkv_refine(**x)
    for row in range(3):
        assert_equal(refined[row], impl.graphkv_refine(**part(x, row)))


@pytest.mark.slow_interpreted
@pytest.mark.spec("GraphKV-4.1")
@given(gaussian_tensor(3, 8, 4), grid(3, 8, high=99), st.integers(1, 8))
def test_which_head_is_first_does_not_matter_to_a_layer(impl, keys, scores, keep):
    x = dict(scores=scores, keys=keys, keep=keep, count=8)
    turned = x | dict(scores=scores.flip(0), keys=keys.flip(0))
    assert_as_accurate(impl.graphkv_refine(**turned), reference.graphkv_refine, x)


@pytest.mark.spec("GraphKV-4.1")
def test_a_layer_graph_and_head_graphs_keep_different_tokens(impl):
    """Tokens 0 and 1 share a key in the first head; 0 and 2 in the second, which is larger."""
    scores = torch.tensor([[1.0, 0.75, 0.5]]).repeat(2, 1)
    first, second = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [[4.0, 0.0], [0.0, 4.0], [4.0, 0.0]]
    x = dict(scores=scores, keys=torch.tensor([first, second]), keep=2, count=1)
    layer, heads = impl.graphkv_refine(**x), impl.graphkv_refine(**x, per_head=True)
    assert layer.topk(2).indices.tolist() == [[0, 1], [0, 1]]
    assert heads.topk(2).indices.tolist() == [[0, 2], [0, 1]]


@pytest.mark.slow_interpreted
@pytest.mark.spec("GraphKV-6.2")
@given(graphkv_refine(signal="evict", rounds=1, fraction=0.01), st.sampled_from([991, 1000, 2000]))
def test_an_adaptive_source_has_a_neighbour_for_each_thousand_tokens(impl, x, more):
    x = lengthened(x | dict(count=3, adaptive=True, protected=None), more)
    evicted = (impl.graphkv_refine(**x) == -torch.inf).sum(-1)
    assert_equal(evicted, torch.full_like(evicted, {991: 0, 1000: 1, 2000: 2}[more]))


@pytest.mark.spec("GraphKV-1")
@given(gaussian_tensor(2, 8, 16), grid(2, 8), st.sampled_from([torch.bfloat16, torch.float16]))
def test_half_precision_is_rounded_once_at_the_end(impl, keys, scores, dtype):
    scores, keys, choices = scores.to(dtype), keys.to(dtype), dict(keep=6, count=3, rounds=2)
    half = impl.graphkv_refine(scores, keys, **choices)
    assert_rounded_once(half, impl.graphkv_refine(scores.float(), keys.float(), **choices))


@pytest.mark.spec("GraphKV-1")
@settings(max_examples=30)
@given(graphkv_refine(batch=(), tokens=st.integers(3, 20), rounds=1), st.data())
def test_how_long_vectors_are_changes_nothing(impl, x, data):
    powers = 2 ** data.draw(grid(x["scores"].shape[-1], 1, low=-3, high=3, scale=1.0))
    scaled = {name: x[name] * powers for name in ("keys", "queries", "values")}
    assert_equal(impl.graphkv_refine(**x | scaled), impl.graphkv_refine(**x))


def magnitude(score, weights, reached, rounds=1, strength=1.0):
    """Return the largest magnitude of a term of refined scores, each of which rounds."""
    return score.abs() * (1 + strength * weights.abs() * reached).prod(-2) ** rounds


def assert_recomposed(impl, x, refined, score, aside, vectors):
    """Assert that the public functions of its parts give the refined scores of one graph."""
    window, content = int(aside.sum()), int((~aside).sum())
    share = impl.source_count(x["keep"], x["fraction"], window if x["exclude_window"] else 0)
    sources = impl.source_tokens(score, min(share, content), aside)
    kind, queries, values = x["kind"], vectors["queries"], vectors["values"]
    weights = impl.edges(vectors["keys"], sources, kind, queries, values, x["clamp"])
    reached = impl.neighbours(weights, sources, x["count"], aside, x["spare_sources"])
    graph = weights, reached, x["rounds"], x["strength"]
    if x["signal"] == "decay":
        expected = impl.decay(score, *graph, x["rule"])
    elif x["signal"] == "enhance":
        expected = impl.enhance(score, *graph)
    else:
        evicted = impl.banish(score, reached, x["rounds"])
        return assert_close(refined, evicted, score.abs())  # a mean of heads may round
    assert_close(refined, expected, magnitude(score, *graph))


def graphs(impl, x):
    """Yield the score, window and vectors of every graph: of a head, or of a row of a layer."""
    scores, aside = x["scores"], x["protected"]
    aside = torch.zeros_like(scores, dtype=torch.bool) if aside is None else aside
    heads = scores.shape[-2]
    group = x["queries"].shape[-3] // heads
    vectors = dict(
        keys=x["keys"],
        queries=x["queries"].unflatten(-3, (heads, group)).mean(-3),
        values=x["values"],
    )
    if not x["per_head"]:
        scores, aside = scores.mean(-2), aside.any(-2)
        vectors = {name: impl.concatenate_heads(whole) for name, whole in vectors.items()}
    for place in product(*map(range, scores.shape[:-1])):
        yield scores[place], aside[place], {name: v[place] for name, v in vectors.items()}


def assert_composed(impl, x):
    """Assert that every graph has the scores that its parts give."""
    whole = impl.graphkv_refine(**x)
    if whole.numel():
        if not x["per_head"]:
            assert_equal(whole, whole[..., :1, :].expand_as(whole).contiguous())
            whole = whole[..., 0, :]
        rows = whole.reshape(-1, whole.shape[-1])
        for row, graph in zip(rows, graphs(impl, x), strict=True):
            assert_recomposed(impl, x, row, *graph)


@pytest.mark.spec("GraphKV-5", "GraphKV-4.1", "GraphKV-6.1", "GraphKV-7.1", "GraphKV-7.2")
@every_focus
@layer_or_head
@settings(max_examples=30)
@given(data=st.data())
def test_every_graph_is_made_of_its_parts(impl, per_head, focus, data):
    some = dict(per_head=per_head, fraction=data.draw(st.sampled_from([0.3, 1.0])))
    some["numbers"] = partial(importance, close=False)
    assert_composed(impl, data.draw(graphkv_refine(unprotected=False, **some, **focuses[focus])))


@pytest.mark.slow_interpreted
@pytest.mark.spec("GraphKV-7.2")
@given(graphkv_refine(per_head=False))
def test_the_heads_of_a_layer_agree(impl, x):
    refined = impl.graphkv_refine(**x)
    assert_equal(refined, refined[..., :1, :].expand_as(refined).contiguous())


@pytest.mark.spec("GraphKV-7.2")
@given(graphkv_refine(unprotected=False) | graphkv_refine(unprotected=False, per_head=False))
def test_a_protected_token_keeps_its_score(impl, x):
    refined, aside, scores = impl.graphkv_refine(**x), x["protected"], x["scores"]
    if not x["per_head"]:
        aside = aside.any(-2, keepdim=True).expand_as(scores)
        scores = scores.mean(-2, keepdim=True).expand_as(scores)
    assert_equal(refined[aside], scores[aside])


@pytest.mark.slow_interpreted
@pytest.mark.spec("GraphKV-7.2")
@given(graphkv_refine(clamp=True, rounds=1))
def test_decay_lies_between_the_evicted_and_the_enhanced_score(impl, x):
    evicted, decayed, enhanced = (
        impl.graphkv_refine(**x | dict(signal=signal)) for signal in ("evict", "decay", "enhance")
    )
    assert (evicted <= decayed).all()
    assert (decayed <= enhanced).all()


@pytest.mark.spec("GraphKV-3")
@settings(max_examples=30)
@given(st.integers(1, 4), st.data())
def test_a_graph_of_many_tokens_is_made_of_its_parts(impl, count, data):
    """Few tokens are neighbours, the first of equals; the last token is a source or protected."""
    many = graphkv_refine(
        batch=(), tokens=st.integers(17, 40), count=count,
        fraction=0.2, signal="evict", rounds=1,
    )  # fmt: skip
    x = data.draw(many)
    x["scores"][..., -1] = 2.0
    assert_composed(impl, x)


@st.composite
def twins(draw):
    """Inputs whose two best tokens have one key; every other token has another direction."""
    scores = torch.cat([draw(grid(2, low=12)), draw(grid(4, high=8))])
    keys = torch.eye(8)[[0, 0, 1, 2, 3, 4]] * draw(st.sampled_from([0.5, 1.0, 4.0]))
    return dict(scores=scores[None], keys=keys[None], keep=6, count=1, fraction=0.4)


@pytest.mark.spec("GraphKV-3")
@given(twins(), strengths)
def test_two_best_twins_annihilate_unless_sources_are_spared(impl, x, strength):
    letter = impl.graphkv_refine(**x, strength=strength)
    spared = impl.graphkv_refine(**x, strength=strength, spare_sources=True)
    assert_equal(letter[0, :2], (1 - strength) * x["scores"][0, :2])
    assert_equal(spared[0, :2], x["scores"][0, :2])


@pytest.mark.spec("GraphKV-2", "GraphKV-3")
@given(graphkv_refine(unprotected=False, per_head=True), st.sampled_from([0.0, 0.5, 64.0]))
def test_what_a_protected_token_scores_changes_no_other(impl, x, value):
    aside = x["protected"]
    other = x | dict(scores=x["scores"].masked_fill(aside, value))
    refined, again = impl.graphkv_refine(**x), impl.graphkv_refine(**other)
    assert_equal(refined[~aside], again[~aside])


@pytest.mark.spec("GraphKV-6.1")
@layer_or_head
@given(data=st.data())
def test_every_graph_takes_its_own_window_off_the_budget(impl, per_head, data):
    fraction = data.draw(st.sampled_from([1.0, 0.5]))
    window = dict(exclude_window=True, fraction=fraction, signal="evict", count=1, rounds=1)
    x = data.draw(graphkv_refine(unprotected=False, batch=(3,), per_head=per_head, **window))
    assert_composed(impl, x | dict(keep=x["scores"].shape[-1]))


@pytest.mark.spec("GraphKV-6.1")
@given(graphkv_refine(unprotected=False, **one_edge))
@example(x=dict(**beside_two, **one_edge, keys=in_pairs))  # each source reaches another token
@example(x=dict(**beside_two, **one_edge, keys=torch.ones(1, 12, 5)))  # all edges tie
def test_excluding_the_window_takes_it_off_the_budget_of_every_graph(impl, x):
    refined = impl.graphkv_refine(**x | dict(exclude_window=True)).flatten(0, -2)
    for row, (own, aside) in enumerate(zip(refined, x["protected"].flatten(0, -2), strict=True)):
        keep = x["keep"] - int(aside.sum())
        sources = min(impl.source_count(keep, x["fraction"]), int((~aside).sum()))
        assert int((own == -torch.inf).sum()) <= sources, row


@pytest.mark.spec("GraphKV-6.3")
@given(graphkv_refine(rounds=0, per_head=True))
def test_no_round_leaves_every_head_as_it_is(impl, x):
    assert_equal(impl.graphkv_refine(**x), x["scores"])
