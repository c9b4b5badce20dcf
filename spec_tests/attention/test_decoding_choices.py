"""What one compression while decoding goes by: gate, neighbours, protected positions, graph."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reference import DecodingConfig, GraphSettings, HubSettings, NmsSettings


@pytest.mark.spec("HubKV-4.3", "HubKV-10")
def test_the_gate_sees_all_that_was_removed_of_the_text(impl):
    """Of 17 tokens 2 stay: λ is (1 - 2/17)², and 0.79 beside 0.8 falls to 0.48.

    The last update alone removed 5 of 7: (5/7)² would leave 0.59 of it, more than the 0.55 of the
    token that stands apart.
    """
    keys, low = torch.zeros(1, 17, 1), torch.full((1, 12), 0.001)
    new = torch.tensor([[0.8, 0.79, 0.002, 0.002, 0.55]])
    config = DecodingConfig(2, 5, "head", sinks=0, recent=0, refinement=HubSettings(tau=0.0))
    for ratio, expected in ((None, [12, 16]), (5 / 7, [12, 13])):
        config = config._replace(ratio=ratio)
        cache = impl.decoding_start(keys[:, :12], keys[:, :12], low, config)
        cache = impl.decoding_append(cache, keys[:, 12:], keys[:, 12:], new)
        assert cache.stored.positions.tolist() == [expected]


@pytest.mark.spec("HubKV-4.3")
@pytest.mark.parametrize("settings", [HubSettings(1, tau=0.0), NmsSettings(1, 0.5)], ids=str)
@pytest.mark.parametrize(("in_the_text", "expected"), [(False, [1, 10]), (True, [1, 5])])
def test_neighbours_are_so_in_the_cache_or_in_the_text(impl, settings, in_the_text, expected):
    """Tokens 1, 5, 8 and 10 stand side by side in the cache, and far apart in the text."""
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


@pytest.mark.spec("HubKV-4.3", "HubKV-11")
def test_sinks_are_so_by_their_first_position_and_stay(impl):
    keys = torch.zeros(1, 8, 1)
    config = DecodingConfig(3, 2, "head", sinks=2, recent=1)
    cache = impl.decoding_start(keys, keys, torch.zeros(1, 8), config)
    assert cache.stored.positions.tolist() == [[0, 1, 7]]
    for _ in range(4):
        cache = impl.decoding_append(cache, keys[:, :2], keys[:, :2], torch.ones(1, 2))
    assert cache.stored.positions.tolist() == [[0, 1, 15]]


@pytest.mark.spec("HubKV-4.3", "HubKV-11")
@pytest.mark.parametrize("scope", ["head", "layer", "model"])
@given(st.integers(60, 300), st.integers(0, 99), st.integers(0, 3), st.integers(5, 9))
def test_the_window_is_a_fiftieth_of_all_tokens_seen(impl, scope, tokens, padding, updates, target):
    """Older tokens score higher: what is kept of the late ones is kept for being recent."""
    for length in ("seen", "held"):
        config = DecodingConfig(target, 10, scope, sinks=2, length=length)
        valid = torch.arange(tokens + padding) >= torch.tensor([[0], [padding]])
        valid = valid if scope == "model" else valid[None]
        scores = -torch.arange(tokens + padding + 10.0 * updates).expand(1, 2, 1, -1)
        keys, old = torch.zeros(*scores.shape, 1), slice(tokens + padding)
        new = slice(tokens + padding, None)
        cache = impl.decoding_start(
            keys[..., old, :], keys[..., old, :], scores[..., old], config, valid
        )
        cache = impl.decoding_append(cache, keys[..., new, :], keys[..., new, :], scores[..., new])
        for row, seen in enumerate((tokens + padding, tokens)):
            left = list(range(seen))
            for update in range(updates + 1):
                if update:
                    left += range(seen, seen + 10)
                    seen += 10
                window = min((seen if length == "seen" else len(left)) // 50, target - 2)
                left = left[: target - window] + left[len(left) - window :]
            assert cache.stored.positions[0, row, 0].tolist() == left


@pytest.mark.spec("HubKV-4.3", "HubKV-11")
def test_after_the_prompt_and_update_of_the_paper_330_tokens_are_recent(impl):
    """Of 16384 + 128 tokens, at a target of 1024; of the 1152 held, 2 % are 23."""
    keys, scores = torch.zeros(1, 1, 16512, 1), -torch.arange(16512.0).view(1, 1, -1)
    old, new = slice(16384), slice(16384, None)
    for length, recent in (("seen", 330), ("held", 23)):
        config = DecodingConfig(1024)._replace(length=length)
        cache = impl.decoding_start(keys[:, :, old], keys[:, :, old], scores[..., old], config)
        cache = impl.decoding_append(cache, keys[:, :, new], keys[:, :, new], scores[..., new])
        places = cache.stored.positions.flatten()
        assert places[-recent:].tolist() == [*range(16512 - recent, 16512)]
        assert places[-recent - 1] < 16512 - recent - 1


@pytest.mark.spec("HubKV-4.3", "HubKV-13")
def test_entries_of_all_layers_compete_by_default(impl):
    keys, scores = torch.zeros(2, 2, 3, 1), torch.zeros(2, 2, 3)
    scores[0, 0] = 1.0
    scores[1, 1, 2] = 0.5
    cache = impl.decoding_start(keys, keys, scores, impl.DecodingConfig(1, sinks=0))
    assert cache.stored.offsets.diff().tolist() == [3, 0, 0, 1]


@pytest.mark.spec("HubKV-4.3", "HubKV-9")
def test_head_weights_decide_what_decoding_keeps_by_default(impl):
    """Two entries in all: 0.6 twice in a flat head, unless its weight lets the other's 0.55 by."""
    keys, scores = torch.zeros(1, 2, 4, 1), torch.full((1, 2, 4), 0.6)
    scores[0, 1] = torch.tensor([0.0, 0.0, 0.0, 0.55])
    for tau, kept in ((0.0, [2, 0]), (0.5, [1, 1])):
        config = impl.DecodingConfig(1, refinement=HubSettings(0, tau=tau), ratio=1.0, sinks=0)
        cache = impl.decoding_start(keys, keys, scores, config)
        assert impl.decoding_read(cache).present.sum(-1).tolist() == [kept]
        cache = impl.decoding_start(keys, keys, scores, config._replace(scope="head"))
        assert impl.decoding_read(cache).present.sum(-1).tolist() == [[1, 1]]


@pytest.mark.spec("HubKV-4.3", "GraphKV-4.1")
def test_the_graph_compares_what_the_cache_still_holds(impl):
    """Token 0 is gone when its copy 8 comes: what is like nothing that is left stays as it is."""
    keys = torch.eye(9)[None].clone()
    keys[0, 8] = keys[0, 1]
    scores = torch.tensor([[0.1, 0.9, 0.8, 0.1, 0.1, 0.1, 0.1, 0.1]])
    config = DecodingConfig(2, 1, "head", sinks=0, recent=0, refinement=GraphSettings(1))
    cache = impl.decoding_start(keys[:, :8], keys[:, :8], scores, config)
    assert cache.stored.positions.tolist() == [[1, 2]]
    cache = impl.decoding_append(cache, keys[:, 8:], keys[:, 8:], torch.tensor([[0.85]]))
    assert cache.stored.positions.tolist() == [[1, 2]]
