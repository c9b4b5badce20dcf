"""The other store: chosen tokens exact, the rest in codes; HEX §3.5."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reference import GraphSettings, HexConfig, HubSettings, NmsSettings, Scored
from spec_tests.accuracy import assert_equal
from spec_tests.draw import booleans, real
from spec_tests.hex.cache.draws import BLOCK, configs, streams
from spec_tests.hex.cache.streams import assert_same_cache
from spec_tests.inputs.compress import compress_into_hex
from spec_tests.inputs.compress_draw import importance, paddings


@pytest.mark.spec("HEX-3.5a", "HEX-4.1a")
@given(streams(2 * BLOCK), configs())
def test_with_attention_mass_it_is_a_hex_prefill(impl, stream, config):
    queries, keys, values = stream
    config = config._replace(carry_recent=False)
    mass = impl.attention_mass(queries, keys)
    scores = torch.stack([mass, torch.zeros_like(mass)], -2)
    scored = Scored(scores, torch.zeros_like(scores, dtype=torch.bool))
    cache = impl.compress(keys, values, scored, store=config)
    assert_same_cache(cache, impl.hex_prefill(queries, keys, values, config))


@st.composite
def chosen(draw, settings=(None,)):
    """A span of blocks, distinct scores, and a budget."""
    batch, tokens = draw(st.sampled_from([(), (2,)])), 4 * draw(st.integers(1, 3))
    shape = (*batch, 2, tokens)
    return dict(
        keys=draw(real(*shape, 4)),
        values=draw(real(*shape, 4)),
        scored=Scored(draw(real(*shape)).abs(), draw(booleans(*shape))),
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


@pytest.mark.spec("HEX-3.1c", "HEX-3.5a")
@given(chosen((None, HubSettings(), NmsSettings(), GraphSettings(1))))
def test_what_is_chosen_is_read_back_exactly(impl, x):
    cache = impl.compress(**x)
    keys, values = impl.hex_read(cache)
    dynamic = cache.blocks[0].dynamic[..., None, :].expand(keys.shape[:-1])
    assert_equal(keys[dynamic], x["keys"][dynamic])
    assert_equal(values[dynamic], x["values"][dynamic])
    assert keys.shape == x["keys"].shape


@pytest.mark.spec("HEX-3.5a")
@pytest.mark.parametrize(
    ("refinement", "expected"),
    [(None, [1, 2]), (HubSettings(), [1, 6]), (NmsSettings(1), [1, 6]), (GraphSettings(1), [1, 6])],
    ids=str,
)
def test_another_refinement_makes_other_heavy_hitters(impl, refinement, expected):
    """Two neighbours with the same key share the top; a token apart from them comes third."""
    scores = torch.tensor([[0.0, 1.0, 0.9, 0.0, 0.0, 0.0, 0.7, 0.0]])
    keys = torch.eye(8)[None].clone()
    keys[0, 2] = keys[0, 1]
    scored = Scored(scores, torch.zeros_like(scores, dtype=torch.bool))
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
    assert_equal(cache.residual_mass, mass[..., span:].clone())
    assert cache.mass.shape[-1] == (0 if config.mode == "append" else span)


@st.composite
def left_padded(draw):
    """A batch of two rows, the second with blocks of padding before it."""
    tokens = 4 * draw(st.integers(1, 3))
    start = 4 * draw(st.integers(0, tokens // 4))
    shape = (2, 2, tokens)
    valid = torch.arange(tokens) >= torch.tensor([[0], [start]])
    scores = draw(importance(*shape, smooth=True)).where(valid[:, None], 0)
    config = HexConfig(
        block=4, density=0.0, recent=draw(st.integers(0, 2)), heavy=draw(st.sampled_from([0, 0.25]))
    )
    keys, values = draw(real(2, *shape, 4))
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
        rows = x["scored"].scores.shape[1 if x["scope"] == "model" else 0 : -2]
        x |= dict(valid=data.draw(paddings(*rows, tokens=x["keys"].shape[-2])))
        x |= dict(store=x["store"]._replace(mode="append"))
    for block in impl.compress(**x).blocks:
        real_ones = x["valid"][..., : block.dynamic.shape[-1]]
        assert not (block.dynamic & ~real_ones).any()


@pytest.mark.spec("HEX-3.3b")
def test_normalized_scores_are_divided_by_the_queries_that_saw_the_token(impl):
    """Of four tokens the last was seen once: its 1 weighs more than the first one's 3 of 4."""
    scores = torch.tensor([[3.0, 0.0, 0.0, 1.0]])
    scored = Scored(scores, torch.zeros_like(scores, dtype=torch.bool))
    config = HexConfig(block=4, density=0.0, recent=0, heavy=0.25)
    keys = torch.ones(1, 4, 2)
    plain = impl.compress(keys, keys, scored, store=config)
    fair = impl.compress(keys, keys, scored, store=config._replace(normalize=True))
    assert plain.blocks[0].dynamic.tolist() == [True, False, False, False]
    assert fair.blocks[0].dynamic.tolist() == [False, False, False, True]
