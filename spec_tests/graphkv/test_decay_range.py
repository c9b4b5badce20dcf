"""Factors that leave the range of a float though the scores do not: GraphKV §6.3, §7.2."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_tests.accuracy import assert_equal

wide = st.sampled_from([torch.float32, torch.float64])


def alike(edge, sources, **rest):
    """A token that every source reaches along the same edge."""
    return dict(
        weights=torch.full((sources, 1), edge),
        neighbours=torch.ones(sources, 1, dtype=torch.bool),
        **rest,
    )


@pytest.mark.spec("GraphKV-5", "GraphKV-6.3")
@given(st.sampled_from(["product", "sequential", "sum"]), st.sampled_from((1, 150, 1080)), wide)
def test_no_decay_moves_a_score_of_0(impl, rule, many, dtype):
    scores = torch.zeros(1, dtype=dtype)
    for x in (alike(-1.0, many, rounds=1), alike(-1.0, 1, rounds=many), alike(1.0, 200, rounds=20)):
        assert_equal(impl.decay(scores, **x, rule=rule), scores)


@pytest.mark.spec("GraphKV-7.2")
@given(st.sampled_from((1, 2, 150, 1080)), wide)
def test_enhancing_0_gives_0(impl, many, dtype):
    scores = torch.zeros(1, dtype=dtype)
    for x in (alike(1.0, many, rounds=1), alike(1.0, 1, rounds=many)):
        assert_equal(impl.enhance(scores, **x), scores)


@pytest.mark.spec("GraphKV-5", "GraphKV-6.3")
@given(st.integers(130, 200), st.integers(60, 90), st.booleans())
def test_a_large_score_survives_what_underflows_by_itself(impl, halvings, power, in_rounds):
    x = alike(0.5, 1, rounds=halvings) if in_rounds else alike(0.5, halvings)
    high, low = torch.tensor([2.0**power]), torch.tensor([2.0 ** (power - halvings)])
    assert_equal(impl.decay(high, **x), low)


@pytest.mark.spec("GraphKV-7.2", "GraphKV-6.3")
@given(st.integers(130, 200), st.integers(80, 120), st.booleans())
def test_a_small_score_rises_by_what_overflows_by_itself(impl, doublings, power, in_rounds):
    x = alike(1.0, 1, rounds=doublings) if in_rounds else alike(1.0, doublings)
    low, high = torch.tensor([2.0**-power]), torch.tensor([2.0 ** (doublings - power)])
    assert_equal(impl.enhance(low, **x), high)


@pytest.mark.spec("GraphKV-5", "GraphKV-6.3")
@settings(max_examples=15)
@given(st.integers(1030, 1200), st.integers(300, 900))
def test_float64_has_the_same_range(impl, halvings, power):
    low, high = (torch.tensor([2.0**p], dtype=torch.float64) for p in (power - halvings, power))
    assert_equal(impl.decay(high, **alike(0.5, 1, rounds=halvings)), low)
    assert_equal(impl.enhance(low, **alike(1.0, halvings)), high)


@pytest.mark.spec("GraphKV-7.2", "GraphKV-6.3")
def test_a_score_of_0_stays_0_beside_scores_that_rise_beyond_the_range(impl):
    scores = torch.tensor([[1.0, 0.5, 0.0]])
    x = dict(keys=torch.ones(1, 3, 2), keep=3, count=2, rounds=128, signal="enhance")
    assert_equal(impl.graphkv_refine(scores, **x), torch.tensor([[1.0, 2.0**127, 0.0]]))
