"""GraphKV end to end: §4, §6.1, §7.1 and §7.2."""

from functools import partial
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close, assert_equal, assert_rounded_once
from spec_tests.graphkv.refine.strategies import graphkv_refine, lengthened
from spec_tests.inputs import INPUTS
from spec_tests.strategies import gaussian_tensor, grid, importance

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


@pytest.mark.spec("GraphKV-4.1")
@given(INPUTS["concatenate_heads"])
def test_a_row_holds_the_heads_of_a_token_side_by_side(impl, x):
    rows, vectors = impl.concatenate_heads(**x), x["vectors"]
    width = vectors.shape[-1]
    assert rows.shape[-1] == vectors.shape[-3] * width
    for head in range(vectors.shape[-3]):
        own = rows[..., head * width : (head + 1) * width]
        assert_equal(own, vectors[..., head, :, :])


@pytest.mark.spec("GraphKV-6.2")
@given(graphkv_refine(signal="evict", rounds=1, fraction=0.01), st.sampled_from([991, 1000, 2000]))
def test_an_adaptive_source_has_a_neighbour_for_each_thousand_tokens(impl, x, extra):
    x = lengthened(x | dict(count=3, adaptive=True, protected=None), extra)
    evicted = (impl.graphkv_refine(**x) == -torch.inf).sum(-1)
    assert_equal(evicted, torch.full_like(evicted, {991: 0, 1000: 1, 2000: 2}[extra]))


@pytest.mark.spec("GraphKV-1")
@given(gaussian_tensor(2, 8, 16), grid(2, 8), st.sampled_from([torch.bfloat16, torch.float16]))
def test_half_precision_is_rounded_once_at_the_end(impl, keys, scores, dtype):
    scores, keys, choices = scores.to(dtype), keys.to(dtype), dict(keep=6, count=3, rounds=2)
    half = impl.graphkv_refine(scores, keys, **choices)
    assert_rounded_once(half, impl.graphkv_refine(scores.float(), keys.float(), **choices))


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
    for index in product(*map(range, scores.shape[:-1])):
        yield scores[index], aside[index], {name: v[index] for name, v in vectors.items()}


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
    fixed = dict(per_head=per_head, fraction=data.draw(st.sampled_from([0.3, 1.0])))
    fixed["numbers"] = partial(importance, close=False)
    assert_composed(impl, data.draw(graphkv_refine(unprotected=False, **fixed, **focuses[focus])))


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


@pytest.mark.spec("GraphKV-6.1")
@layer_or_head
@given(data=st.data())
def test_every_graph_takes_its_own_window_off_the_budget(impl, per_head, data):
    fraction = data.draw(st.sampled_from([1.0, 0.5]))
    window = dict(exclude_window=True, fraction=fraction, signal="evict", count=1, rounds=1)
    x = data.draw(graphkv_refine(unprotected=False, batch=(3,), per_head=per_head, **window))
    assert_composed(impl, x | dict(keep=x["scores"].shape[-1]))
