"""GraphKV end to end is its parts, one graph at a time, whatever the choices."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_tests.accuracy import assert_equal
from spec_tests.inputs.graphkv import graphkv_refine


def graphs(impl, x):
    """The score, window and vectors of every graph: of each head, or of each layer's rows."""
    scores, aside = x["scores"], x["protected"]
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


def recomposed(impl, x, score, aside, vectors):
    """One graph, part by part."""
    window, content = int(aside.sum()), int((~aside).sum())
    share = impl.source_count(x["keep"], x["fraction"], window if x["exclude_window"] else 0)
    sources = impl.source_tokens(score, min(share, content), aside)
    kind, queries, values = x["kind"], vectors["queries"], vectors["values"]
    weights = impl.edges(vectors["keys"], sources, kind, queries, values, x["clamp"])
    reached = impl.neighbours(weights, sources, x["count"], aside, x["spare_sources"])
    if x["signal"] == "decay":
        return impl.decay(score, weights, reached, x["rounds"], x["strength"], x["rule"])
    if x["signal"] == "enhance":
        return impl.enhance(score, weights, reached, x["rounds"], x["strength"])
    return impl.banish(score, reached, x["rounds"])


def assert_composed(impl, x):
    """Every graph is what its parts make of it."""
    whole = impl.graphkv_refine(**x)
    if whole.numel():
        rows = (whole if x["per_head"] else whole[..., 0, :]).reshape(-1, whole.shape[-1])
        for row, graph in zip(rows, graphs(impl, x), strict=True):
            assert_equal(row, recomposed(impl, x, *graph))


# chance alone rarely combines what it takes for a choice to matter
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


@pytest.mark.spec("GraphKV-5", "GraphKV-4.1", "GraphKV-6.1", "GraphKV-7.1", "GraphKV-7.2")
@every_focus
@layer_or_head
@settings(max_examples=30)
@given(data=st.data())
def test_every_graph_is_made_of_its_parts(impl, per_head, focus, data):
    some = dict(per_head=per_head, fraction=data.draw(st.sampled_from([0.3, 1.0])))
    assert_composed(impl, data.draw(graphkv_refine(unprotected=False, **some, **focuses[focus])))


@pytest.mark.spec("GraphKV-6.1")
@layer_or_head
@given(data=st.data())
def test_every_graph_takes_its_own_window_off_the_budget(impl, per_head, data):
    window = dict(exclude_window=True, fraction=1.0, signal="evict", count=1, rounds=1)
    x = data.draw(graphkv_refine(unprotected=False, batch=(3,), per_head=per_head, **window))
    assert_composed(impl, x | dict(keep=x["scores"].shape[-1]))
