"""Whole compressors: refine, retain, store; HubKV §2.1, GraphKV §4.1, HEX §3.5."""

import math
from contextlib import nullcontext
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reference import GraphSettings, HexConfig, HubSettings, NmsSettings, Scored
from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.compress.batch_rows import (
    alone,
    count_entries_per_head,
    entries,
    kept_mask,
    of_row,
    row_indices_and_starts,
)
from spec_tests.compress.strategies import (
    compress,
    compress_into_hex,
    count_protected_and_real_entries,
)
from spec_tests.hex.cache.feed_stream import assert_same_cache
from spec_tests.hex.cache.strategies import BLOCK, configs, streams
from spec_tests.inputs import INPUTS
from spec_tests.refinement.strategies import (
    graph_settings,
    paddings,
    scored_caches,
    shape_of_rows,
    spread,
    unprotected_scores,
)
from spec_tests.retain.strategies import flatten_pools
from spec_tests.strategies import booleans, gaussian_tensor

INDEX_BYTES = 8


@st.composite
def padded(draw):
    """Inputs of `compress`; for some, the budget includes the excluded window."""
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


@pytest.mark.spec("HubKV-1", "HubKV-13", "GraphKV-4.1")
@pytest.mark.parametrize(
    ("select", "compress"),
    [("select", "compress"), ("hubkv_select", "hubkv_compress"),
     ("graphkv_select", "graphkv_compress")],
)  # fmt: skip
@given(data=st.data())
def test_what_is_left_is_what_is_marked(impl, select, compress, data):
    x = data.draw(INPUTS[select])
    kept = getattr(impl, select)(**x)
    assert_equal(impl.evict(x["keys"], x["values"], kept), getattr(impl, compress)(**x))


@pytest.mark.spec("HubKV-1", "GraphKV-4.1")
@given(padded())
def test_a_padded_row_is_compressed_as_it_is_alone(impl, x):
    shape = x["scored"].scores.shape
    whole = entries(impl.compress(**x), shape[:-1])
    assert len(whole) == shape[:-1].numel()
    for at, start in row_indices_and_starts(x):
        one = alone(x, at, start)
        by_itself = entries(impl.compress(**one), one["scored"].scores.shape[:-1])
        together = of_row(whole, shape[:-1], at)
        for found, (keys, values, positions) in zip(together, by_itself, strict=True):
            assert_equal(found, (keys, values, positions + start))


@pytest.mark.spec("HubKV-1")
@given(compress() | compress(unpadded=False, forms=("ratio",)))
def test_every_pool_keeps_its_budget_of_real_entries(impl, x):
    shape, scope = x["scored"].scores.shape, x["scope"]
    kept = count_entries_per_head(impl.compress(**x), shape[:-1])[..., None]
    _, sizes, _ = count_protected_and_real_entries(x, scope)
    total = flatten_pools(kept, scope).sum(-1)
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
    kept = kept_mask(impl.compress(**x), scores.shape)
    assert (kept | ~protected).all()
    if x["valid"] is not None:
        assert not (kept & ~spread(x["valid"], scores.shape, x["scope"])).any()


@pytest.mark.spec("HubKV-1")
@given(compress())
def test_padding_may_hold_anything(impl, x):
    scores, protected = x["scored"]
    if x["valid"] is None:
        rows = shape_of_rows(scores, x["scope"])
        x |= dict(valid=torch.ones(*rows, scores.shape[-1], dtype=torch.bool))
    there = spread(x["valid"], scores.shape, x["scope"])
    spoilt = x | dict(
        keys=x["keys"].where(there[..., None], torch.nan),
        values=x["values"].where(there[..., None], torch.inf),
        scored=Scored(scores.where(there, -torch.inf), protected | ~there),
    )
    assert_equal(impl.compress(**spoilt), impl.compress(**x))


@pytest.mark.spec("HubKV-1", "GraphKV-4.1")
@given(compress())
def test_without_padding_it_is_three_calls(impl, x):
    scope, (scores, protected) = x["scope"], x["scored"]
    pool, tokens = flatten_pools(scores, scope).shape[-1], scores.shape[-1]
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
    """The first and third token have one key; the first query equals the second key."""
    across, along = [1.0, 0.0], [0.0, 1.0]
    keys, queries = torch.tensor([[across, along, across]]), torch.tensor([[along, across, along]])
    scored = unprotected_scores(torch.tensor([[1.0, 0.75, 0.5]]))
    graph = GraphSettings(count=1, kind=kind)
    cache = impl.compress(keys, keys, scored, keep=2, refinement=graph, queries=queries)
    assert cache.positions.tolist() == [kept]


@pytest.mark.spec("GraphKV-7.2")
def test_a_banished_token_still_goes_before_padding(impl):
    keys = torch.ones(1, 1, 6, 2)
    scored = unprotected_scores(torch.tensor([[[0.0, 0, 1, 2, 3, 4]]]))
    valid = torch.tensor([[False, False, True, True, True, True]])
    banished = GraphSettings(count=3, signal="evict")
    cache = impl.compress(keys, keys, scored, keep=3, valid=valid, refinement=banished)
    assert cache.positions.tolist() == [[[2, 3, 5]]]


@pytest.mark.spec("GraphKV-4.1", "HubKV-1")
@given(compress())
def test_nothing_of_the_cache_stays_alive(impl, x):
    cache = impl.compress(**x)
    kept = count_entries_per_head(cache, x["scored"].scores.shape[:-1])
    width, element = x["keys"].shape[-1], x["keys"].element_size()
    bounds = (kept.numel() + 1) * INDEX_BYTES if hasattr(cache, "offsets") else 0
    each = 2 * width * element + INDEX_BYTES
    assert impl.stored_bytes(cache) == int(kept.sum()) * each + bounds


@pytest.mark.spec("HubKV-10")
@given(scored_caches("head", HubSettings(), summed=True, marked=False), st.integers(0, 8))
def test_the_gate_of_each_row_sees_what_its_own_budget_removes(impl, x, keep):
    """A row that keeps everything keeps its scores."""
    keep = min(keep, x["keys"].shape[-2])
    cache = impl.compress(**x, keep=keep, refinement=HubSettings())
    for at, start in row_indices_and_starts(x | dict(scope="head")):
        tokens = x["keys"].shape[-2] - start
        scores = x["scored"].scores[at][..., start:]
        ratio = 1 - min(keep, tokens) / max(1, tokens)
        refined = impl.hubkv_refine(scores, ratio)
        kept = impl.retain(refined, keep=min(keep, tokens))
        shape = x["scored"].scores.shape[:-1]
        found = of_row(entries(cache, shape), shape, at)
        for entry, mask in zip(found, kept.flatten(0, -2), strict=True):
            assert (entry[2] - start).tolist() == mask.nonzero()[:, 0].tolist()


@pytest.mark.spec("HubKV-13", "HubKV-Obs3")
@pytest.mark.parametrize("settings", [HubSettings(), NmsSettings()], ids=str)
@pytest.mark.argument_checks
def test_a_real_score_below_0_is_refused_unless_it_is_protected_from_suppression(impl, settings):
    """NMS does not read protected scores, and no refinement reads padding."""
    keys, valid = torch.ones(1, 3, 2), torch.tensor([False, True, True])
    protected = torch.tensor([[False, True, False]])
    for place in (2, 1, 0):
        scored = Scored(torch.ones(1, 3), protected)
        scored.scores[0, place] = -0.25
        read = place == 2 or (place == 1 and not isinstance(settings, NmsSettings))
        with impl.refuses("finite and >= 0") if read else nullcontext():
            impl.select(keys, keys, scored, keep=1, refinement=settings, valid=valid)


@pytest.mark.spec("HubKV-Obs3")
def test_a_row_above_its_length_keeps_all_of_it(impl):
    keys = torch.arange(8.0).view(2, 1, 4, 1)
    scored = unprotected_scores(torch.ones(2, 1, 4))
    valid = torch.arange(4) >= torch.tensor([[0], [2]])
    cache = impl.compress(keys, keys, scored, keep=3, valid=valid, refinement=NmsSettings())
    assert cache.offsets.tolist() == [0, 3, 5]
    assert cache.positions.tolist() == [0, 1, 2, 2, 3]


@pytest.mark.spec("HEX-3.5a", "HEX-4.1a")
@given(streams(2 * BLOCK), configs())
def test_with_attention_mass_it_is_a_hex_prefill(impl, stream, config):
    queries, keys, values = stream
    config = config._replace(carry_recent=False)
    mass = impl.attention_mass(queries, keys)
    scores = torch.stack([mass, torch.zeros_like(mass)], -2)
    scored = unprotected_scores(scores)
    cache = impl.compress(keys, values, scored, store=config)
    assert_same_cache(cache, impl.hex_prefill(queries, keys, values, config))


@st.composite
def chosen(draw, settings=(None,)):
    """Inputs of whole blocks with a budget and Gaussian scores, so without ties."""
    batch, tokens = draw(st.sampled_from([(), (2,)])), 4 * draw(st.integers(1, 3))
    shape = (*batch, 2, tokens)
    return dict(
        keys=draw(gaussian_tensor(*shape, 4)),
        values=draw(gaussian_tensor(*shape, 4)),
        scored=Scored(draw(gaussian_tensor(*shape)).abs(), draw(booleans(*shape))),
        keep=draw(st.integers(0, tokens)),
        refinement=draw(st.sampled_from(settings)),
        store=HexConfig(block=4, density=0.0, recent=draw(st.integers(0, 2))),
    )


@pytest.mark.spec("HEX-3.5a", "HEX-3.3d")
@given(chosen())
def test_heavy_hitters_stand_beside_protected_tokens_and_the_window(impl, x):
    scores, protected = x["scored"]
    (block,) = impl.compress(**x).blocks
    mass, shields = scores.double().sum(-2), protected.any(-2)
    for dynamic, score, shield in zip(
        block.dynamic.view(-1, scores.shape[-1]).tolist(),
        mass.view(-1, scores.shape[-1]).tolist(),
        shields.view(-1, scores.shape[-1]).tolist(),
        strict=True,
    ):
        rivals = [t for t in range(len(score)) if not shield[t]]
        best = sorted(rivals, key=lambda t: -score[t])[: x["keep"]]
        window = range(len(score) - x["store"].recent, len(score))
        expected = [shield[t] or t in best or t in window for t in range(len(score))]
        assert dynamic == expected


@pytest.mark.spec("HEX-3.5a")
@pytest.mark.parametrize(
    ("refinement", "expected"),
    [(None, [1, 2]), (HubSettings(), [1, 6]), (NmsSettings(1), [1, 6]), (GraphSettings(1), [1, 6])],
    ids=str,
)
def test_another_refinement_makes_other_heavy_hitters(impl, refinement, expected):
    """Two neighbours with the same key have the highest scores; a distant token is third."""
    scores = torch.tensor([[0.0, 1.0, 0.9, 0.0, 0.0, 0.0, 0.7, 0.0]])
    keys = torch.eye(8)[None].clone()
    keys[0, 2] = keys[0, 1]
    scored = unprotected_scores(scores)
    config = HexConfig(block=8, density=0.0, recent=0)
    cache = impl.compress(keys, keys, scored, keep=2, refinement=refinement, store=config)
    assert cache.blocks[0].dynamic.nonzero()[:, 0].tolist() == expected


@pytest.mark.spec("HEX-3.5a")
@given(compress_into_hex())
def test_a_cache_holds_the_prompt_its_scores_and_no_more(impl, x):
    cache, config = impl.compress(**x), x["store"]
    held = config.recent if config.carry_recent else 0
    tokens = x["keys"].shape[-2]
    span = max(0, tokens - held) // config.block * config.block
    assert sum(block.dynamic.shape[-1] for block in cache.blocks) == span
    assert cache.residual_keys.shape[-2] == tokens - span
    assert impl.hex_bytes(cache).total == impl.stored_bytes(cache)
    mass = x["scored"].scores.sum(-2)
    assert_close(cache.residual_mass, mass[..., span:].double(), 8.0)
    assert cache.mass.shape[-1] == (0 if config.mode == "append" else span)


@st.composite
def left_padded(draw):
    """A batch of two rows, the second with blocks of padding before it."""
    tokens = 4 * draw(st.integers(1, 3))
    start = 4 * draw(st.integers(0, tokens // 4))
    shape = (2, 2, tokens)
    valid = torch.arange(tokens) >= torch.tensor([[0], [start]])
    scores = draw(gaussian_tensor(*shape)).abs().where(valid[:, None], 0)
    config = HexConfig(
        block=4, density=0.0, recent=draw(st.integers(0, 2)), heavy=draw(st.sampled_from([0, 0.25]))
    )
    keys, values = draw(gaussian_tensor(2, *shape, 4))
    protected = draw(booleans(*shape)) & valid[:, None]
    return keys, values, Scored(scores, protected), valid, config, start


@pytest.mark.spec("HEX-3.5a", "HEX-3.4a")
@given(left_padded(), st.sampled_from([None, HubSettings(), GraphSettings(1)]))
def test_padding_of_whole_blocks_changes_nothing_that_is_stored(impl, x, refinement):
    keys, values, scored, valid, config, start = x
    settings = dict(refinement=refinement, store=config)
    spoilt = keys.masked_fill(~valid[:, None, :, None], torch.nan)
    whole = impl.compress(spoilt, values, scored, valid=valid, **settings)
    parts = keys[1, :, start:], values[1, :, start:], Scored(*(s[1, :, start:] for s in scored))
    alone = impl.compress(*parts, **settings)
    assert len(alone.blocks) == (start < keys.shape[-2])
    for block in alone.blocks:
        together = whole.blocks[0]
        assert not together.dynamic[1, :start].any()
        assert_equal(together.dynamic[1, start:], block.dynamic)
        assert_equal(together.key_steps[1], block.key_steps)
        assert_equal(together.key_minima[1], block.key_minima)
        for now, then in zip(impl.hex_read(whole), impl.hex_read(alone), strict=True):
            assert_equal(now[1, :, start:], then)


@pytest.mark.spec("HEX-3.5a")
@given(compress_into_hex(), st.data())
def test_padding_is_never_kept(impl, x, data):
    if x["valid"] is None:
        rows = shape_of_rows(x["scored"].scores, x["scope"])
        x |= dict(valid=data.draw(paddings(*rows, tokens=x["keys"].shape[-2])))
        x |= dict(store=x["store"]._replace(mode="append"))
    for block in impl.compress(**x).blocks:
        real_ones = x["valid"][..., : block.dynamic.shape[-1]]
        assert not (block.dynamic & ~real_ones).any()


@pytest.mark.spec("HEX-3.1c", "HEX-3.5a")
@given(chosen((None, HubSettings(), NmsSettings(), GraphSettings(1))))
def test_what_is_chosen_is_read_back_exactly(impl, x):
    cache = impl.compress(**x)
    keys, values = impl.hex_read(cache)
    dynamic = cache.blocks[0].dynamic[..., None, :].expand(keys.shape[:-1])
    assert_equal(keys[dynamic], x["keys"][dynamic])
    assert_equal(values[dynamic], x["values"][dynamic])
    assert keys.shape == x["keys"].shape


@pytest.mark.spec("HEX-3.3b")
def test_normalized_scores_are_divided_by_the_queries_that_saw_the_token(impl):
    """The last of four tokens was seen by one query: its score 1 exceeds the first one's 3 of 4."""
    scores = torch.tensor([[3.0, 0.0, 0.0, 1.0]])
    scored = unprotected_scores(scores)
    config = HexConfig(block=4, density=0.0, recent=0, heavy=0.25)
    keys = torch.ones(1, 4, 2)
    plain = impl.compress(keys, keys, scored, store=config)
    fair = impl.compress(keys, keys, scored, store=config._replace(normalize=True))
    assert plain.blocks[0].dynamic.tolist() == [True, False, False, False]
    assert fair.blocks[0].dynamic.tolist() == [False, False, False, True]
