"""What one compression while decoding goes by: gate, neighbours, protected positions, graph."""

import pytest
import torch

from reference import DecodingConfig, GraphSettings, HubSettings, NmsSettings


@pytest.mark.spec("HubKV-4.3", "HubKV-10")
def test_the_gate_sees_all_that_was_removed_of_the_text(impl):
    """Of 17 tokens 2 stay: λ is (1 - 2/17)², and 0.79 beside 0.8 falls to 0.48.

    The last update alone removed 5 of 7: (5/7)² would leave 0.59 of it, more than the 0.55 of the
    token that stands apart.
    """
    keys, low = torch.zeros(1, 17, 1), torch.full((1, 12), 0.001)
    new = torch.tensor([[0.8, 0.79, 0.002, 0.002, 0.55]])
    config = DecodingConfig(2, 5, sinks=0, recent=0, refinement=HubSettings(tau=0.0))
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
    config = DecodingConfig(3, 1, sinks=0, recent=0)
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
    config = DecodingConfig(target=3, interval=2, sinks=2, recent=1)
    cache = impl.decoding_start(keys, keys, torch.zeros(1, 8), config)
    assert cache.stored.positions.tolist() == [[0, 1, 7]]
    for _ in range(4):
        cache = impl.decoding_append(cache, keys[:, :2], keys[:, :2], torch.ones(1, 2))
    assert cache.stored.positions.tolist() == [[0, 1, 15]]


@pytest.mark.spec("HubKV-4.3", "HubKV-11")
def test_the_window_is_a_fiftieth_of_the_cache_before_it_shrinks(impl):
    """Of 100 tokens the last 2 are protected, of the 60 held later only the last one."""
    keys = torch.zeros(1, 100, 1)
    scores = torch.ones(1, 100)
    scores[0, 97:] = 0
    config = DecodingConfig(target=50, interval=10, sinks=0)
    cache = impl.decoding_start(keys, keys, scores, config)
    assert cache.stored.positions[0, -3:].tolist() == [47, 98, 99]
    more = torch.zeros(1, 10)
    cache = impl.decoding_append(cache, keys[:, :10], keys[:, :10], more)
    assert cache.stored.positions[0, -3:].tolist() == [47, 98, 109]


@pytest.mark.spec("HubKV-4.3", "GraphKV-4.1")
def test_the_graph_compares_what_the_cache_still_holds(impl):
    """Token 0 is gone when its copy 8 comes: what is like nothing that is left stays as it is."""
    keys = torch.eye(9)[None].clone()
    keys[0, 8] = keys[0, 1]
    scores = torch.tensor([[0.1, 0.9, 0.8, 0.1, 0.1, 0.1, 0.1, 0.1]])
    config = DecodingConfig(2, 1, sinks=0, recent=0, refinement=GraphSettings(1))
    cache = impl.decoding_start(keys[:, :8], keys[:, :8], scores, config)
    assert cache.stored.positions.tolist() == [[1, 2]]
    cache = impl.decoding_append(cache, keys[:, 8:], keys[:, 8:], torch.tensor([[0.85]]))
    assert cache.stored.positions.tolist() == [[1, 2]]
