"""The ratio gate and its bounds: HubKV §3.3 and Appendix J.3."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_at_most, assert_close, assert_rounded_once
from spec_tests.hubkv.discount.oracle import fractions
from spec_tests.hubkv.ratio_gate import oracle
from spec_tests.hubkv.ratio_gate.strategies import ratios
from spec_tests.strategies import gaussian_tensor, grid

sixteenths = st.integers(0, 16).map(lambda n: Fraction(n, 16))
above_zero = st.integers(1, 80).map(lambda n: Fraction(n, 16))
quarters = st.sampled_from([Fraction(1, 4), Fraction(1, 2), Fraction(3, 4)])
clips = st.tuples(st.integers(1, 16), st.integers(0, 24)).map(
    lambda ends: (Fraction(ends[0], 8), Fraction(ends[1], 8))
)


@pytest.mark.spec("HubKV-10", "HubKV-15")
@given(
    grid(9, low=-8),
    grid(9, low=-8),
    st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]),
    st.sampled_from([1.0, 2.0]),
)
def test_the_gate_mixes_by_the_ratios_power(impl, scores, corrected, ratio, power):
    strength = Fraction(ratio) ** int(power)
    pairs = zip(fractions(scores), fractions(corrected), strict=True)
    expected = [float(oracle.gated(s, u, strength)) for s, u in pairs]
    assert impl.gate(scores, corrected, ratio, power).tolist() == expected


@pytest.mark.spec("HubKV-15")
@given(gaussian_tensor(2, 8), gaussian_tensor(2, 8), ratios)
def test_the_mixture_is_rounded_once(impl, scores, corrected, ratio):
    scores, corrected = scores.bfloat16(), corrected.bfloat16()
    wide = impl.gate(scores.float(), corrected.float(), ratio)
    terms = scores.abs().float() + corrected.abs().float()
    assert_rounded_once(impl.gate(scores, corrected, ratio), wide, terms)


def double(number):
    """Return a fraction as a tensor of one number."""
    return torch.tensor([float(number)], dtype=torch.float64)


def gated(impl, score, corrected, strength):
    """Return the gate's result for one token, in float64."""
    return impl.gate(double(score), double(corrected), float(strength), 1.0)


@pytest.mark.spec("HubKV-16", "HubKV-Prop3")
@given(sixteenths, quarters, sixteenths, clips, sixteenths, st.booleans())
def test_the_bound_holds_for_any_weight(impl, score, gamma, strength, clip, share, hub):
    low, high = clip[0], clip[0] + clip[1]
    weight = low + share * (high - low)
    z = gated(impl, score, weight * (1 if hub else gamma) * score, strength)
    least, most = oracle.factor_bounds(strength, gamma, low, high)
    assert_at_most(double(least * score), z)
    assert_at_most(z, double(most * score))


@pytest.mark.spec("HubKV-17", "HubKV-Prop3")
@given(st.data())
def test_the_ranking_is_stable_for_any_lead(impl, data):
    gamma, strength, clip = (data.draw(s) for s in (quarters, sixteenths, clips))
    low, high = clip[0], clip[0] + clip[1]
    least, most = oracle.factor_bounds(strength, gamma, low, high)
    behind = data.draw(above_zero)
    # the first multiple of 1/16 above the lead that (17) requires
    ahead = Fraction(math.floor(behind * most / least * 16) + 1, 16)
    q_ahead, q_behind = (low + data.draw(sixteenths) * (high - low) for _ in range(2))
    q_ahead, q_behind = (q * data.draw(st.sampled_from([gamma, 1])) for q in (q_ahead, q_behind))
    z_ahead = gated(impl, ahead, q_ahead * ahead, strength)
    assert z_ahead > gated(impl, behind, q_behind * behind, strength)


@pytest.mark.spec("HubKV-17", "HubKV-Prop3")
@given(quarters, sixteenths, clips)
def test_the_lead_that_stability_asks_for_is_the_least(impl, gamma, strength, clip):
    """At exactly the ratio of (17) the two tokens tie."""
    low, high = clip[0], clip[0] + clip[1]
    behind, ahead = oracle.factor_bounds(strength, gamma, low, high)
    assert_close(gated(impl, ahead, gamma * low * ahead, strength), double(ahead * behind))
    assert_close(gated(impl, behind, high * behind, strength), double(ahead * behind))
