"""Compression while decoding: HubKV §4.3."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reference import DecodingConfig, Scored
from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.draw import real
from spec_tests.inputs import INPUTS
from spec_tests.inputs.compress_draw import hub_settings, nms_settings, spread
from spec_tests.inputs.decoding import append, caches, configs, start, streams
from spec_tests.oracles import decoding as oracle

plain = st.none() | hub_settings | nms_settings


def held(impl, cache):
    """Return the positions each head holds."""
    view = impl.decoding_read(cache)
    rows = zip(view.positions.flatten(0, -2), view.present.flatten(0, -2), strict=True)
    return [place[here].tolist() for place, here in rows]


@pytest.mark.spec("HubKV-4.3")
@given(st.data(), configs(refinements=plain), st.integers(0, 8), st.integers(0, 8))
def test_it_holds_what_a_list_of_entries_would(impl, data, config, prompt, decoded):
    layers, heads = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2))
    keys, values, scores = data.draw(streams(config, prompt + decoded, (layers, 2), heads))

    def refine(layer, ratio, outside):
        return impl.refine(Scored(layer, outside), config.refinement, keep=0, ratio=ratio)

    part = slice(prompt)
    cache = impl.decoding_start(keys[..., part, :], values[..., part, :], scores[..., part], config)
    part = slice(prompt, None)
    cache = impl.decoding_append(cache, keys[..., part, :], values[..., part, :], scores[..., part])
    found = iter(held(impl, cache))
    expected = [
        oracle.simulate(scores[:, row, :, :prompt], scores[:, row, :, prompt:], config, refine)
        for row in range(2)
    ]
    for layer in range(layers):
        for row in range(2):
            for head in range(heads):
                assert next(found) == [place for place, _ in expected[row][layer, head]]


@pytest.mark.spec("HubKV-4.3")
@given(append(), st.sampled_from([1, 2, 3]))
def test_tokens_may_come_in_any_chunks(impl, x, size):
    x["mass"] = None
    once, cache, tokens = impl.decoding_append(**x), x["cache"], x["scores"].shape[-1]
    for low in range(0, tokens, size):
        part = slice(low, low + size)
        new = (x[name][..., part, :] for name in ("keys", "values"))
        cache = impl.decoding_append(cache, *new, x["scores"][..., part])
    assert_equal(cache, once)


@pytest.mark.spec("HubKV-4.3")
@given(start(), st.integers(0, 5), st.data())
def test_a_padded_row_goes_on_as_it_does_alone(impl, x, decoded, data):
    config, shape = x["config"], x["scores"].shape
    new = data.draw(streams(config, decoded, shape[:-2], shape[-2]))
    view = impl.decoding_read(impl.decoding_append(impl.decoding_start(**x), *new))
    model = config.scope == "model"
    rows = shape[1:-2] if model else shape[:-2]
    for index in range(rows.numel()):
        row = tuple(int(i) for i in torch.unravel_index(torch.tensor(index), rows)) if rows else ()
        at = (slice(None), *row) if model else row
        begin = 0 if x["valid"] is None else int((~x["valid"][row]).sum())
        one = {name: x[name][at][..., begin:, :] for name in ("keys", "values")}
        one |= dict(scores=x["scores"][at][..., begin:], config=config, valid=None)
        alone = impl.decoding_append(impl.decoding_start(**one), *(part[at] for part in new))
        apart = impl.decoding_read(alone)
        width = apart.present.shape[-1]
        here = slice(view.present.shape[-1] - width, None)
        assert not view.present[at][..., : here.start].any()
        for now, then in zip(view[:2], apart[:2], strict=True):
            assert_equal(now[at][..., here, :], then)
        for now, then in zip(view[2:], apart[2:], strict=True):
            assert_equal(now[at][..., here], then)


@pytest.mark.spec("HubKV-4.3")
@given(start(refinements=plain))
def test_a_prompt_is_compressed_as_any_cache_is(impl, x):
    config, scores = x["config"], x["scores"]
    tokens = scores.shape[-1]
    x["valid"] = None
    config = config._replace(original_positions=False, ratio=None)
    cache = impl.decoding_start(**x | dict(config=config))
    heads = dict(head=1, layer=scores.shape[-2], model=scores.shape[0] * scores.shape[-2])
    recent = 0 if config.recent is None else config.recent  # fewer than 50 tokens
    recent = min(recent, config.target - config.sinks)
    protected = impl.protected_mask(tokens, config.sinks, recent).expand(scores.shape).clone()
    keep = min(config.target, tokens) * heads[config.scope]
    expected = impl.compress(
        x["keys"], x["values"], Scored(scores, protected), keep=keep, scope=config.scope,
        refinement=config.refinement,
    )  # fmt: skip
    assert_equal(cache.stored, expected)


@pytest.mark.spec("HubKV-4.3")
@given(INPUTS["decoding_append"])
def test_raw_scores_survive_refinement(impl, x):
    """What is stored is what was given, whatever the entry was worth after refinement."""
    x["mass"] = None
    before, cache = impl.decoding_read(x["cache"]), impl.decoding_append(**x)
    after = impl.decoding_read(cache)
    seen = x["cache"].seen
    for head in range(before.scores.shape[:-1].numel()):
        old = before.positions.flatten(0, -2)[head].tolist()
        known = dict(zip(old, before.scores.flatten(0, -2)[head].tolist(), strict=True))
        first = int(seen.flatten()[head // before.scores.shape[-2]])
        known |= dict(enumerate(x["scores"].flatten(0, -2)[head].tolist(), first))
        places, scores = after.positions.flatten(0, -2)[head], after.scores.flatten(0, -2)[head]
        for place, score in zip(places.tolist(), scores.tolist(), strict=True):
            assert score == (known[place] if place >= 0 else 0)


@pytest.mark.spec("HubKV-4.3")
@given(append(refinements=st.none()))
def test_mass_is_added_to_the_scores_of_what_is_held(impl, x):
    cache, mass = x["cache"], x["mass"]
    view = impl.decoding_read(cache)
    if mass is None:
        mass = torch.ones_like(view.scores)
    none = slice(0, 0)
    nothing = x["keys"][..., none, :], x["values"][..., none, :], x["scores"][..., none]
    after = impl.decoding_read(impl.decoding_append(cache, *nothing, mass=mass))
    expected = torch.where(view.present, view.scores + mass, 0)
    assert_equal(after, view._replace(scores=expected))
    spoilt = mass.where(view.present, torch.nan)
    assert_equal(impl.decoding_append(**x | dict(mass=spoilt)),
                 impl.decoding_append(**x | dict(mass=mass)))  # fmt: skip


@pytest.mark.spec("HubKV-4.3", "GraphKV-H2O")
@given(real(2, 2, 9, 4), st.integers(1, 9), st.integers(1, 3))
def test_attention_mass_over_prompt_and_decoding_is_that_of_one_pass(impl, x, prompt, step):
    """H2O: the prompt's columns, then each new query's weights on all that is held and itself."""
    queries, keys = x

    config = DecodingConfig(9, 2, "head", sinks=0)
    early = slice(prompt)
    scores = impl.h2o_mass(queries[:, early], keys[:, early])
    cache = impl.decoding_start(keys[:, early], keys[:, early], scores, config)
    for first in range(prompt, 9, step):
        new = slice(first, first + step)
        view = impl.decoding_read(cache)
        weights = impl.h2o_mass(queries[:, new], torch.cat([view.keys, keys[:, new]], -2))
        older = view.keys.shape[-2]
        cache = impl.decoding_append(
            cache, keys[:, new], keys[:, new], weights[:, older:], weights[:, :older]
        )
    once = impl.h2o_mass(queries.double(), keys.double())
    assert_close(impl.decoding_read(cache).scores, once, 9.0)


@pytest.mark.spec("HubKV-4.3")
@given(caches())
def test_a_cache_weighs_what_it_holds(impl, cache):
    """No storage outlives its tokens: 4 bytes a number and a score, 8 a position and a count."""
    new = torch.zeros(*cache.pending_scores.shape[:-1], 1)
    rows = torch.zeros(*new.shape, cache.pending_keys.shape[-1])
    after = impl.decoding_append(cache, rows, rows, new)
    entry = 2 * rows.shape[-1] * 4 + 4
    pending = after.pending_scores.numel()
    count = after.scores.numel()
    bounds = 8 * (new.numel() + 1) if hasattr(after.stored, "offsets") else 0
    expected = (count + pending) * entry + 8 * count + bounds + 8 * after.seen.numel()
    assert impl.stored_bytes(after) == expected


@pytest.mark.spec("HubKV-4.3")
@given(start(scopes=("head",)))
def test_below_the_target_nothing_is_lost(impl, x):
    tokens = x["scores"].shape[-1]
    x["config"] = x["config"]._replace(target=max(2, tokens))
    there = torch.ones_like(x["scores"], dtype=torch.bool)
    if x["valid"] is not None:
        there = spread(x["valid"], x["scores"].shape, "head")
    expected = [list(range(int(row.sum()))) for row in there.flatten(0, -2)]
    assert held(impl, impl.decoding_start(**x)) == expected
