"""Whole compressors: refine, retain, store; HubKV §2.1, GraphKV §4.1, HEX §3.5."""

import math
from contextlib import nullcontext
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reference import GraphSettings, HexConfig, HubSettings, NmsSettings, Scored
from spec_tests.accuracy import assert_equal
from spec_tests.compress.batch_rows import (
    alone,
    count_entries_per_head,
    entries,
    of_row,
    row_indices_and_starts,
)
from spec_tests.compress.strategies import compress, count_protected_and_real_entries
from spec_tests.hex.cache.feed_stream import assert_same_cache
from spec_tests.hex.cache.strategies import BLOCK, configs, streams
from spec_tests.refinement.strategies import graph_settings, scored_caches, unprotected_scores
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


@pytest.mark.spec("HubKV-1", "GraphKV-4.1")
@given(padded())
def test_a_padded_row_is_compressed_as_it_is_alone(impl, x):
    shape = x["scored"].scores.shape
    whole = entries(impl.compress(**x), shape[:-1])
    assert len(whole) == shape[:-1].numel()
    for row, start in row_indices_and_starts(x):
        row_call = alone(x, row, start)
        by_itself = entries(impl.compress(**row_call), row_call["scored"].scores.shape[:-1])
        together = of_row(whole, shape[:-1], row)
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


@pytest.mark.spec("GraphKV-4.1", "HubKV-1")
@given(compress())
def test_nothing_of_the_cache_stays_alive(impl, x):
    cache = impl.compress(**x)
    kept = count_entries_per_head(cache, x["scored"].scores.shape[:-1])
    width, element = x["keys"].shape[-1], x["keys"].element_size()
    bounds = (kept.numel() + 1) * INDEX_BYTES if hasattr(cache, "offsets") else 0
    entry_bytes = 2 * width * element + INDEX_BYTES
    assert impl.stored_bytes(cache) == int(kept.sum()) * entry_bytes + bounds


@pytest.mark.spec("HubKV-13", "HubKV-Obs3")
@pytest.mark.parametrize("settings", [HubSettings(), NmsSettings()], ids=str)
@pytest.mark.argument_checks
def test_a_real_score_below_0_is_refused_unless_it_is_protected_from_suppression(impl, settings):
    """NMS does not read protected scores, and no refinement reads padding."""
    keys, valid = torch.ones(1, 3, 2), torch.tensor([False, True, True])
    protected = torch.tensor([[False, True, False]])
    for token in (2, 1, 0):
        scored = Scored(torch.ones(1, 3), protected)
        scored.scores[0, token] = -0.25
        read = token == 2 or (token == 1 and not isinstance(settings, NmsSettings))
        with impl.refuses("finite and >= 0") if read else nullcontext():
            impl.select(keys, keys, scored, keep=1, refinement=settings, valid=valid)


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
def chosen(draw):
    """Inputs of whole blocks with a budget and Gaussian scores, so without ties."""
    batch, tokens = draw(st.sampled_from([(), (2,)])), 4 * draw(st.integers(1, 3))
    shape = (*batch, 2, tokens)
    return dict(
        keys=draw(gaussian_tensor(*shape, 4)),
        values=draw(gaussian_tensor(*shape, 4)),
        scored=Scored(draw(gaussian_tensor(*shape)).abs(), draw(booleans(*shape))),
        keep=draw(st.integers(0, tokens)),
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
