"""Whole compressors: refine, retain, evict; HubKV §2.1, GraphKV §4.1."""

import math
from fractions import Fraction
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reference import GraphSettings, HubSettings, NmsSettings, Scored
from spec_tests.accuracy import assert_equal
from spec_tests.attention.rows import alone, counts, entries, rows
from spec_tests.inputs.compress import compress, pools_of, without_store
from spec_tests.inputs.compress_draw import graph_settings, scored_caches, spread
from spec_tests.retain.draws import pooled

INDEX_BYTES = 8


@st.composite
def padded(draw):
    """Rows in every scope by every refinement; at times a window that comes off the budget."""
    if draw(st.integers(0, 3)):
        return draw(compress())
    settings = draw(graph_settings(window=st.just(True)))
    x = draw(scored_caches("head", settings, marked=False))
    shape = x["scored"].scores.shape
    protected = torch.zeros(shape, dtype=torch.bool)
    protected[..., shape[-1] - 1 :] = True
    if x["valid"] is not None:
        protected &= x["valid"][..., None, :]
    keep = draw(st.integers(min(1, shape[-1]), shape[-1]))
    return x | dict(
        scored=Scored(x["scored"].scores, protected),
        keep=keep,
        ratio=None,
        scope="head",
        refinement=settings,
        queries=None,
        store=None,
    )


@pytest.mark.spec("HubKV-1", "GraphKV-4.1")
@given(padded())
def test_what_is_left_is_what_select_marks(impl, x):
    kept = impl.select(**without_store(x))
    assert_equal(impl.evict(x["keys"], x["values"], kept), impl.compress(**x))


@pytest.mark.spec("HubKV-1", "GraphKV-4.1")
@given(padded())
def test_a_padded_row_is_compressed_as_it_is_alone(impl, x):
    shape = x["scored"].scores.shape
    whole = entries(impl.compress(**x), shape[:-1])
    heads = {head: whole[i] for i, head in enumerate(product(*map(range, shape[:-1])))}
    places = torch.arange(shape[:-1].numel()).view(shape[:-1])
    for at, start in rows(x):
        one = alone(x, at, start)
        by_itself = entries(impl.compress(**one), one["scored"].scores.shape[:-1])
        assert places[at].numel() == len(by_itself)
        for place, (keys, values, positions) in zip(
            places[at].flatten().tolist(), by_itself, strict=True
        ):
            assert_equal(whole[place], (keys, values, positions + start))
    assert len(heads) == len(whole)


@pytest.mark.spec("HubKV-1")
@given(compress() | compress(unpadded=False, forms=("ratio",)))
def test_every_pool_keeps_its_budget_of_real_entries(impl, x):
    shape, scope = x["scored"].scores.shape, x["scope"]
    kept = counts(impl.compress(**x), shape[:-1])[..., None]
    _, sizes, _ = pools_of(x, scope)
    total = pooled(kept, scope).sum(-1)
    if x["ratio"] is None:
        expected = torch.as_tensor(x["keep"]).expand(sizes.shape).clamp(max=sizes)
    else:
        left = 1 - Fraction(str(x["ratio"]))
        exact = [math.floor(left * size) for size in sizes.flatten().tolist()]
        expected = torch.tensor(exact, dtype=torch.int64).view(sizes.shape)
    assert_equal(total, expected.clone())


@pytest.mark.spec("HubKV-1", "HubKV-11")
@given(compress())
def test_protected_tokens_stay_and_padding_never_does(impl, x):
    scores, protected = x["scored"]
    kept = torch.zeros_like(protected)
    found = entries(impl.compress(**x), scores.shape[:-1])
    for head, entry in zip(product(*map(range, scores.shape[:-1])), found, strict=True):
        kept[head][entry[2]] = True
    assert (kept | ~protected).all()
    if x["valid"] is not None:
        assert not (kept & ~spread(x["valid"], scores.shape, x["scope"])).any()


@pytest.mark.spec("HubKV-1")
@given(compress())
def test_padding_may_hold_anything(impl, x):
    if x["valid"] is None:
        x |= dict(valid=torch.ones_like(spread_shape(x)))
    scores, protected = x["scored"]
    there = spread(x["valid"], scores.shape, x["scope"])
    spoilt = x | dict(
        keys=x["keys"].where(there[..., None], torch.nan),
        values=x["values"].where(there[..., None], torch.inf),
        scored=Scored(scores.where(there, -torch.inf), protected | ~there),
    )
    assert_equal(impl.compress(**spoilt), impl.compress(**x))


def spread_shape(x):
    """Return a mask of the rows and tokens."""
    shape = x["scored"].scores.shape
    rows_shape = shape[1:-2] if x["scope"] == "model" else shape[:-2]
    return torch.zeros(*rows_shape, shape[-1], dtype=torch.bool)


@pytest.mark.spec("HubKV-1", "GraphKV-4.1")
@given(compress())
def test_without_padding_it_is_three_calls(impl, x):
    scope, (scores, protected) = x["scope"], x["scored"]
    pool, tokens = pooled(scores, scope).shape[-1], scores.shape[-1]
    x |= dict(valid=None, keep=pool // 2, ratio=None)
    x["scored"] = scored = Scored(scores, protected & False)
    settings, vectors = x["refinement"], dict(keys=x["keys"])
    if isinstance(settings, GraphSettings) and "v" in settings.kind:
        vectors |= dict(values=x["values"])
    if x["queries"] is not None:
        vectors |= dict(queries=x["queries"])
    ratio = 1 - x["keep"] / max(1, pool)
    share = x["keep"] // (pool // tokens) if pool else 0
    refined = impl.refine(scored, settings, keep=share, ratio=ratio, **vectors)
    kept = impl.retain(refined, scored.protected, keep=x["keep"], scope=scope)
    assert_equal(impl.compress(**x), impl.evict(x["keys"], x["values"], kept))


@pytest.mark.spec("GraphKV-1", "GraphKV-4.1")
@pytest.mark.parametrize(("kind", "kept"), [("kk", [0, 1]), ("qk", [0, 2]), ("kv", [0, 1])])
def test_a_graph_compares_the_vectors_of_its_kind(impl, kind, kept):
    """The first token's key is the third's, and its query the second's key."""
    across, along = [1.0, 0.0], [0.0, 1.0]
    keys, queries = torch.tensor([[across, along, across]]), torch.tensor([[along, across, along]])
    scored = Scored(torch.tensor([[1.0, 0.75, 0.5]]), torch.zeros(1, 3).bool())
    graph = GraphSettings(count=1, kind=kind)
    cache = impl.compress(keys, keys, scored, keep=2, refinement=graph, queries=queries)
    assert cache.positions.tolist() == [kept]


@pytest.mark.spec("GraphKV-4.1", "HubKV-1")
@given(compress())
def test_nothing_of_the_cache_stays_alive(impl, x):
    cache = impl.compress(**x)
    kept = counts(cache, x["scored"].scores.shape[:-1])
    width, element = x["keys"].shape[-1], x["keys"].element_size()
    bounds = (kept.numel() + 1) * INDEX_BYTES if hasattr(cache, "offsets") else 0
    each = 2 * width * element + INDEX_BYTES
    assert impl.stored_bytes(cache) == int(kept.sum()) * each + bounds


@pytest.mark.spec("GraphKV-7.2")
def test_a_banished_token_still_goes_before_padding(impl):
    keys = torch.ones(1, 1, 6, 2)
    scored = Scored(torch.tensor([[[0.0, 0, 1, 2, 3, 4]]]), torch.zeros(1, 1, 6).bool())
    valid = torch.tensor([[False, False, True, True, True, True]])
    banished = GraphSettings(count=3, signal="evict")
    cache = impl.compress(keys, keys, scored, keep=3, valid=valid, refinement=banished)
    assert cache.positions.tolist() == [[[2, 3, 5]]]


@pytest.mark.spec("HubKV-10")
@given(scored_caches("head", None, smooth=True, marked=False), st.integers(0, 8))
def test_the_gate_of_each_row_sees_what_its_own_budget_removes(impl, x, keep):
    """A row that keeps everything is not corrected at all; NMS, which has no gate, is."""
    keep = min(keep, x["keys"].shape[-2])
    cache = impl.compress(**x, keep=keep, refinement=HubSettings())
    for at, start in rows(x | dict(scope="head")):
        tokens = x["keys"].shape[-2] - start
        scores = x["scored"].scores[at][..., start:]
        ratio = 1 - min(keep, tokens) / max(1, tokens)
        refined = impl.hubkv_refine(scores, ratio)
        kept = impl.retain(refined, keep=min(keep, tokens))
        shape = x["scored"].scores.shape[:-1]
        places = torch.arange(shape.numel()).view(shape)[at].flatten().tolist()
        found = entries(cache, shape)
        for place, mask in zip(places, kept.flatten(0, -2), strict=True):
            assert (found[place][2] - start).tolist() == mask.nonzero()[:, 0].tolist()


@pytest.mark.spec("HubKV-Obs3")
def test_a_row_above_its_length_keeps_all_of_it(impl):
    keys = torch.arange(8.0).view(2, 1, 4, 1)
    scored = Scored(torch.ones(2, 1, 4), torch.zeros(2, 1, 4).bool())
    valid = torch.arange(4) >= torch.tensor([[0], [2]])
    cache = impl.compress(keys, keys, scored, keep=3, valid=valid, refinement=NmsSettings())
    assert cache.offsets.tolist() == [0, 3, 5]
    assert cache.positions.tolist() == [0, 1, 2, 2, 3]


@pytest.mark.spec("HubKV-1")
@pytest.mark.parametrize("tokens", [3, 5])
def test_scores_of_other_tokens_than_the_keys_are_refused(impl, tokens):
    scored = Scored(torch.ones(1, tokens), torch.zeros(1, tokens).bool())
    with pytest.raises(ValueError, match=r"scored\.scores must have shape \(1, 4\)"):
        impl.compress(torch.ones(1, 4, 2), torch.ones(1, 4, 2), scored, keep=2)
