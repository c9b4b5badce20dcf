"""Segments of the context and reference lines: HubKV §2.3, Appendix I."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.inputs import INPUTS


@st.composite
def walks(draw):
    """A few positions in any order."""
    tokens = draw(st.integers(1, 60))
    order = draw(st.lists(st.integers(0, tokens - 1), min_size=1, max_size=20))
    return torch.tensor(order), tokens, draw(st.integers(1, 70))


@pytest.mark.spec("HubKV-Obs1")
@given(walks())
def test_gains_sum_to_the_covered_share_in_any_order(impl, x):
    order, tokens, segments = x
    gains = impl.segment_coverage(order, tokens, segments)
    covered = len({segments * pick // tokens for pick in order.tolist()}) / segments
    assert gains[0] > 0
    assert_close(gains.sum(), covered)
    assert_close(impl.segment_coverage(order.flip(0), tokens, segments).sum(), covered)


@pytest.mark.spec("HubKV-I", "HubKV-Obs1")
@given(st.integers(1, 12), st.integers(1, 6), st.integers(0, 100))
def test_an_even_spread_covers_every_segment(impl, segments, per_segment, extra):
    """For multiples of the segments; for other numbers of picks if the context is long enough."""
    picks = segments * per_segment
    spread = impl.uniform_spread(picks + extra, picks)
    assert (impl.segment_coverage(spread, picks + extra, segments) > 0).sum() == segments


@pytest.mark.spec("HubKV-I", "HubKV-Obs1")
def test_at_the_length_of_the_paper_no_pick_of_the_spread_is_wasted(impl):
    for picks in range(1, 81):
        gains = impl.segment_coverage(impl.uniform_spread(2004, picks), 2004)
        assert_close(gains.sum(), min(picks, 64) / 64)


@pytest.mark.spec("HubKV-I")
@given(INPUTS["random_order"])
def test_a_random_order_visits_each_position_once(impl, x):
    order = impl.random_order(**x)
    assert_equal(order.sort().values, torch.arange(x["tokens"]))
    assert_equal(order, impl.random_order(**x))
