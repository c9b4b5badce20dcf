"""Half-edge pairing and double-edge swaps: HEX A.2, A.3."""

import pytest
import torch
from hypothesis import example, given

from spec_tests.accuracy import assert_equal, assert_within_five_deviations
from spec_tests.hex.connectivity.oracle import fewest_components
from spec_tests.inputs import INPUTS

RINGS = torch.tensor([[0, 1], [1, 2], [0, 2], [3, 4], [4, 5], [3, 5]])
"""Two rings of six edges."""
RING = torch.tensor([[0, 1, *range(2, 8)], [0, 1, *range(8, 14)]])
TASSELS = torch.cat([RING, RING + 14])
"""Two rings of two tokens; of the 16 edges of each, 12 lead to a channel with no other edge."""


def channel_degrees(pairs, channels):
    return torch.bincount(pairs.flatten(), minlength=channels)


def assert_simple_with_the_same_degrees(pairs, x):
    assert_equal(channel_degrees(pairs, x["channels"]), channel_degrees(x["pairs"], x["channels"]))
    assert pairs.shape == x["pairs"].shape
    assert (pairs.diff(dim=1) > 0).all()


def coincidences(pairs):
    """Return the number of pairs of half-edges of one token that end in one channel."""
    same = pairs[:, :, None] == pairs[:, None, :]
    return int(same.sum() - pairs.numel()) // 2


@pytest.mark.spec("HEX-A.2a")
@given(INPUTS["half_edge_pairing"])
def test_the_channels_share_the_half_edges_evenly(impl, x):
    pairs = impl.half_edge_pairing(**x)
    assert pairs.shape == (x["tokens"], x["token_degree"])
    degrees = channel_degrees(pairs, x["channels"])
    assert degrees.max() - degrees.min() == (pairs.numel() % x["channels"] > 0)


@pytest.mark.spec("HEX-A.2a")
def test_every_half_edge_of_a_token_meets_every_channel_equally_often(impl):
    draws = torch.stack([impl.half_edge_pairing(8, 6, 3, seed) for seed in range(500)])
    for channel in range(6):
        met = (draws == channel).sum(0)
        assert_within_five_deviations(met, 500 / 6, 500 / 6 * 5 / 6)


@pytest.mark.spec("HEX-A.2a")
@pytest.mark.parametrize(("tokens", "channels", "degree"), [(96, 1024, 32), (192, 64, 4)])
def test_a_mask_loses_about_half_the_product_of_the_degrees_less_one(
    impl, tokens, channels, degree
):
    # few enough to be nearly independent, so that their variance is their mean
    drawn = [impl.half_edge_pairing(tokens, channels, degree, seed) for seed in range(50)]
    lost = (torch.stack(drawn).sort(-1).values.diff(dim=-1) == 0).sum()
    expected = 50 * (degree - 1) * (tokens * degree // channels - 1) / 2
    assert_within_five_deviations(lost, expected, expected)


@pytest.mark.spec("HEX-A.2a", "HEX-A.3a")
def test_a_seed_and_a_draw_name_a_pairing_and_swaps(impl):
    names = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]
    first, again = ([impl.half_edge_pairing(32, 32, 4, *name) for name in names] for _ in "ab")
    assert_equal(first, again)
    assert len(torch.stack(first).unique(dim=0)) == 5
    for swaps, pairs in ((impl.double_edge_swaps, first[0]), (impl.connecting_swaps, RINGS)):
        swapped, again = ([swaps(pairs, 32, *name) for name in names] for _ in "ab")
        assert_equal(swapped, again)


@pytest.mark.spec("HEX-A.3a")
@given(INPUTS["double_edge_swaps"])
@example(dict(pairs=torch.arange(4)[:, None].repeat(1, 2), channels=4, seed=0, draw=0))
def test_swaps_leave_a_simple_graph_with_the_same_degrees(impl, x):
    assert_simple_with_the_same_degrees(impl.double_edge_swaps(**x), x)


@pytest.mark.spec("HEX-A.3a")
def test_swaps_change_few_edges(impl):
    pairs = impl.half_edge_pairing(96, 64, 8)
    repaired = impl.double_edge_swaps(pairs, 64)
    before = torch.stack([(pairs == c).sum(1) for c in range(64)], 1)
    after = torch.stack([(repaired == c).sum(1) for c in range(64)], 1)
    # a swap removes two edges; sometimes a second one removes a repetition
    assert int((before - after).clamp(min=0).sum()) <= 4 * coincidences(pairs)


@pytest.mark.spec("HEX-A.3a")
@pytest.mark.parametrize("last", [True, False])
def test_swaps_look_at_every_token_of_a_long_graph(impl, last):
    """200 tokens of two channels, which are connected only through the last token."""
    pairs = torch.tensor([0, 1]).repeat(200, 1)
    pairs[100:] += 2
    pairs[-1] = torch.tensor([1, 2]) if last else pairs[-1]
    joined = impl.connecting_swaps(pairs, 4)
    assert impl.component_count(impl.biadjacency(joined, 4)) == 1
    assert torch.equal(joined, pairs) == last


@pytest.mark.spec("HEX-A.3a")
@given(INPUTS["connecting_swaps"])
def test_swaps_connect_a_graph_as_far_as_its_degrees_allow(impl, x):
    pairs = impl.connecting_swaps(**x)
    assert_simple_with_the_same_degrees(pairs, x)
    mask = impl.biadjacency(pairs, x["channels"])
    assert impl.component_count(mask) == fewest_components(mask)


@pytest.mark.spec("HEX-A.3a")
@given(INPUTS["connecting_swaps"])
@example(dict(pairs=TASSELS, channels=28, seed=3))
def test_two_edges_change_for_each_component_that_joins_another(impl, x):
    before = impl.biadjacency(x["pairs"], x["channels"])
    after = impl.biadjacency(impl.connecting_swaps(**x), x["channels"])
    joined = impl.component_count(before) - impl.component_count(after)
    assert int((before & ~after).sum()) <= 2 * joined


@pytest.mark.spec("HEX-A.3a")
def test_any_edge_of_a_ring_may_be_the_one_that_swaps(impl):
    # a swap takes one of six edges of each
    kept = torch.stack(
        [impl.biadjacency(impl.connecting_swaps(RINGS, 6, seed), 6) for seed in range(500)]
    ).sum(0)
    assert_within_five_deviations(kept.gather(1, RINGS), 500 * 5 / 6, 500 * 5 / 36)
