"""Compression while decoding: HubKV §4.3."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reference import DecodingConfig, HubSettings, NmsSettings, Scored
from spec_tests.accuracy import assert_equal
from spec_tests.decoding_compression import oracle
from spec_tests.decoding_compression.strategies import configs, part, start, streams
from spec_tests.inputs import INPUTS
from spec_tests.refinement.strategies import hub_settings, nms_settings

pytestmark = pytest.mark.spec("HubKV-4.3")

plain = st.none() | hub_settings | nms_settings


def held(impl, cache):
    """Return the positions in each head."""
    view = impl.decoding_read(cache)
    rows = zip(view.positions.flatten(0, -2), view.present.flatten(0, -2), strict=True)
    return [position[here].tolist() for position, here in rows]


@given(st.data(), configs(refinements=plain), st.integers(0, 8), st.integers(0, 8))
def test_it_holds_what_a_list_of_entries_would(impl, data, config, prompt, decoded):
    layers, heads = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2))
    stream = data.draw(streams(config, prompt + decoded, (layers, 2), heads))

    def refine(layer, ratio, outside):
        return impl.refine(Scored(layer, outside), config.refinement, keep=0, ratio=ratio)

    cache = impl.decoding_start(*part(stream, 0, prompt), config)
    cache = impl.decoding_append(cache, *part(stream, prompt))
    found, scores = iter(held(impl, cache)), stream[2]
    expected = [
        oracle.simulate(scores[:, row, :, :prompt], scores[:, row, :, prompt:], config, refine)
        for row in range(2)
    ]
    for layer in range(layers):
        for row in range(2):
            for head in range(heads):
                assert next(found) == [position for position, _ in expected[row][layer, head]]


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


@given(INPUTS["decoding_append"])
def test_raw_scores_survive_refinement(impl, x):
    """The cache stores the given scores, not the refined ones."""
    x["mass"] = None
    before, cache = impl.decoding_read(x["cache"]), impl.decoding_append(**x)
    after = impl.decoding_read(cache)
    seen = x["cache"].seen
    for head in range(before.scores.shape[:-1].numel()):
        old = before.positions.flatten(0, -2)[head].tolist()
        score_of = dict(zip(old, before.scores.flatten(0, -2)[head].tolist(), strict=True))
        first = int(seen.flatten()[head // before.scores.shape[-2]])
        score_of |= dict(enumerate(x["scores"].flatten(0, -2)[head].tolist(), first))
        positions, scores = after.positions.flatten(0, -2)[head], after.scores.flatten(0, -2)[head]
        for position, score in zip(positions.tolist(), scores.tolist(), strict=True):
            assert score == (score_of[position] if position >= 0 else 0)


@pytest.mark.spec("HubKV-10")
def test_the_gate_sees_all_that_was_removed_of_the_text(impl):
    """Two of 17 tokens stay: λ is (1 - 2/17)², and 0.79 beside the hub 0.8 falls to 0.48.

    The last update alone removed 5 of 7: with (5/7)² the score 0.79 would fall to 0.59, which is
    still above the score 0.55 of the distant token.
    """
    scores = torch.tensor([[0.001] * 12 + [0.8, 0.79, 0.002, 0.002, 0.55]])
    stream = scores[..., None], scores[..., None], scores
    config = DecodingConfig(2, 5, "head", sinks=0, recent=0, refinement=HubSettings(tau=0.0))
    for ratio, expected in ((None, [12, 16]), (5 / 7, [12, 13])):
        config = config._replace(ratio=ratio)
        cache = impl.decoding_start(*part(stream, 0, 12), config)
        cache = impl.decoding_append(cache, *part(stream, 12))
        assert cache.stored.positions.tolist() == [expected]


@pytest.mark.parametrize("settings", [HubSettings(1, tau=0.0), NmsSettings(1, 0.5)], ids=str)
@pytest.mark.parametrize(("in_the_text", "expected"), [(False, [1, 10]), (True, [1, 5])])
def test_neighbours_are_so_in_the_cache_or_in_the_text(impl, settings, in_the_text, expected):
    """Tokens 1, 5, 8 and 10 are adjacent in the cache, and far apart in the text."""
    keys, scores = torch.zeros(1, 10, 1), torch.zeros(1, 10)
    scores[0, 1], scores[0, 5], scores[0, 8] = 0.75, 0.625, 0.375
    config = DecodingConfig(3, 1, "head", sinks=0, recent=0)
    cache = impl.decoding_start(keys, keys, scores, config)
    later = config._replace(
        target=2, refinement=settings, ratio=1.0, original_positions=in_the_text
    )
    new = torch.tensor([[0.5]])
    cache = impl.decoding_append(cache._replace(config=later), keys[:, :1], keys[:, :1], new)
    assert cache.stored.positions.tolist() == [expected]


@pytest.mark.spec("HubKV-11")
def test_sinks_are_so_by_their_first_position_and_stay(impl):
    keys = torch.zeros(1, 8, 1)
    config = DecodingConfig(3, 2, "head", sinks=2, recent=1)
    cache = impl.decoding_start(keys, keys, torch.zeros(1, 8), config)
    assert cache.stored.positions.tolist() == [[0, 1, 7]]
    for _ in range(4):
        cache = impl.decoding_append(cache, keys[:, :2], keys[:, :2], torch.ones(1, 2))
    assert cache.stored.positions.tolist() == [[0, 1, 15]]


@pytest.mark.spec("HubKV-11")
@pytest.mark.parametrize("scope", ["head", "layer", "model"])
@given(st.integers(60, 300), st.integers(0, 99), st.integers(0, 3), st.integers(5, 9))
def test_the_window_is_a_fiftieth_of_all_tokens_seen(impl, scope, tokens, padding, updates, target):
    """Older tokens score higher, so that late tokens are kept by the recent window only."""
    for length in ("seen", "held"):
        config = DecodingConfig(target, 10, scope, sinks=2, length=length)
        valid = torch.arange(tokens + padding) >= torch.tensor([[0], [padding]])
        valid = valid if scope == "model" else valid[None]
        scores = -torch.arange(tokens + padding + 10.0 * updates).expand(1, 2, 1, -1)
        stream = scores[..., None], scores[..., None], scores
        cache = impl.decoding_start(*part(stream, 0, tokens + padding), config, valid)
        cache = impl.decoding_append(cache, *part(stream, tokens + padding))
        for row, seen in enumerate((tokens + padding, tokens)):
            left = list(range(seen))
            for update in range(updates + 1):
                if update:
                    left += range(seen, seen + 10)
                    seen += 10
                window = min((seen if length == "seen" else len(left)) // 50, target - 2)
                left = left[: target - window] + left[len(left) - window :]
            assert cache.stored.positions[0, row, 0].tolist() == left


@pytest.mark.spec("HubKV-11")
def test_after_the_prompt_and_update_of_the_paper_330_tokens_are_recent(impl):
    """2 % of 16384 + 128 tokens; 2 % of the 1152 tokens in the cache are 23."""
    scores = -torch.arange(16512.0).view(1, 1, -1)
    stream = scores[..., None], scores[..., None], scores
    for length, recent in (("seen", 330), ("held", 23)):
        config = DecodingConfig(1024)._replace(length=length)
        cache = impl.decoding_start(*part(stream, 0, 16384), config)
        cache = impl.decoding_append(cache, *part(stream, 16384))
        positions = cache.stored.positions.flatten()
        assert positions[-recent:].tolist() == [*range(16512 - recent, 16512)]
        assert positions[-recent - 1] < 16512 - recent - 1


@pytest.mark.spec("HubKV-13")
def test_entries_of_all_layers_compete_by_default(impl):
    keys, scores = torch.zeros(2, 2, 3, 1), torch.zeros(2, 2, 3)
    scores[0, 0] = 1.0
    scores[1, 1, 2] = 0.5
    cache = impl.decoding_start(keys, keys, scores, impl.DecodingConfig(1, sinks=0))
    assert cache.stored.offsets.diff().tolist() == [3, 0, 0, 1]


@pytest.mark.spec("HubKV-9")
def test_head_weights_decide_what_decoding_keeps_by_default(impl):
    """The flat head keeps two entries of score 0.6, unless weights favour the other head's 0.55."""
    keys, scores = torch.zeros(1, 2, 4, 1), torch.full((1, 2, 4), 0.6)
    scores[0, 1] = torch.tensor([0.0, 0.0, 0.0, 0.55])
    for tau, kept in ((0.0, [2, 0]), (0.5, [1, 1])):
        config = impl.DecodingConfig(1, refinement=impl.HubSettings(0, tau=tau), ratio=1.0, sinks=0)
        cache = impl.decoding_start(keys, keys, scores, config)
        assert impl.decoding_read(cache).present.sum(-1).tolist() == [kept]
        cache = impl.decoding_start(keys, keys, scores, config._replace(scope="head"))
        assert impl.decoding_read(cache).present.sum(-1).tolist() == [[1, 1]]
