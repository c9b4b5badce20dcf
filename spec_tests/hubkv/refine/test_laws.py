"""The whole refinement: HubKV §3.3, A.1, and its theorems through all four steps."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_at_most, assert_close, assert_equal, assert_rounded_once
from spec_tests.hubkv.discount.strategies import gammas
from spec_tests.hubkv.discount.test_laws import (
    every_dtype,
    mark_rivals,
    window_with_a_unique_maximum,
)
from spec_tests.hubkv.head_calibration.strategies import bounds
from spec_tests.hubkv.ratio_gate.strategies import powers, ratios
from spec_tests.hubkv.refine.strategies import knobs
from spec_tests.inputs import INPUTS
from spec_tests.strategies import grid

finite_refine = INPUTS["hubkv_refine"].map(lambda x: {**x, "maximum": min(x["maximum"], 4.0)})

ramp = dict(
    scores=torch.stack([torch.arange(64) / 64, torch.arange(64) % 2 / 2]), protected=None, ratio=1.0
)
ramp |= dict(radius=2, gamma=0.5, tau=0.5, minimum=0.125, maximum=4.0, power=2.0, epsilon=1e-6)
"""Two heads: the lowest scores of one are far below its highest, those of the other are equal."""


def content_of(x):
    """Mark the tokens that are not protected."""
    everywhere = torch.ones_like(x["scores"], dtype=torch.bool)
    return everywhere if x["protected"] is None else ~x["protected"]


def by_steps(impl, scores, ratio, protected, radius, gamma, tau, minimum, maximum, power, epsilon):
    """Return the refined scores by the implementation's own four steps."""
    hubs = impl.hub_mask(scores, radius, protected)
    selectivity = impl.selectivity(scores, protected, epsilon)
    weights = impl.head_weights(selectivity, tau, minimum, maximum)
    corrected = impl.calibrate(impl.discount(scores, hubs, gamma), weights)
    return impl.gate(scores, corrected, ratio, power)


@pytest.mark.spec("HubKV-9", "HubKV-10", "HubKV-12", "HubKV-13", "HubKV-15")
@every_dtype
@given(x=finite_refine)
@example(x=ramp)
def test_refinement_is_its_four_steps(impl, dtype, x):
    scores = x["scores"].to(dtype)
    exact = by_steps(impl, **{**x, "scores": scores.double()})
    if x["protected"] is not None:
        exact = exact.masked_fill(x["protected"], 1)
    assert_close(impl.hubkv_refine(**{**x, "scores": scores}), exact)


@pytest.mark.spec("HubKV-15")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@given(knobs=knobs(), ratio=ratios, seed=st.integers(0, 99), sinks=st.integers(0, 3))
def test_refined_scores_are_rounded_once(impl, dtype, knobs, ratio, seed, sinks):
    scores = torch.rand((2, 3, 16), generator=torch.Generator().manual_seed(seed)).to(dtype)
    protected = impl.protected_mask(16, sinks).expand(scores.shape)
    wide = impl.hubkv_refine(scores.float(), ratio, protected, **knobs)
    assert_rounded_once(impl.hubkv_refine(scores, ratio, protected, **knobs), wide)


@pytest.mark.spec("HubKV-13")
@given(INPUTS["hubkv_refine"])
def test_protected_tokens_read_one(impl, x):
    assert (impl.hubkv_refine(**x)[~content_of(x)] == 1).all()


@pytest.mark.spec("HubKV-16", "HubKV-Prop3")
@given(finite_refine)
def test_refined_scores_stay_within_bounds_of_the_raw(impl, x):
    content = content_of(x)
    raw, out = x["scores"][content], impl.hubkv_refine(**x)[content]
    strength = x["ratio"] ** x["power"]
    assert_at_most((1 - strength + strength * x["gamma"] * x["minimum"]) * raw, out)
    assert_at_most(out, (1 - strength + strength * x["maximum"]) * raw)


@pytest.mark.spec("HubKV-17", "HubKV-Prop3")
@given(grid(2, 3, 12, low=8), st.permutations(range(72)), gammas, ratios, powers)
def test_a_large_enough_lead_survives_every_head_and_hub(impl, scores, order, gamma, ratio, power):
    """Half the tokens, at any positions, lead all others by more than (17) requires."""
    strength = ratio**power
    lead = (1 - strength + strength * 1.2) / (1 - strength + strength * gamma * 0.8)
    ahead = torch.zeros(72, dtype=torch.bool)
    ahead[list(order[:36])] = True
    ahead = ahead.reshape(scores.shape)
    # the others are within [0.5, 1], so that twice the lead is above all of them
    scores = torch.where(ahead, scores * 2 * lead * (1 + 2**-16), scores)
    out = impl.hubkv_refine(scores, ratio, gamma=gamma, power=power)
    assert out[ahead].min() > out[~ahead].max()


@pytest.mark.spec("HubKV-Thm1")
@given(window_with_a_unique_maximum(), grid(2, 20), gammas, ratios, powers, bounds)
def test_a_unique_maximum_outranks_its_window_after_all_steps(
    impl, x, others, gamma, ratio, power, clip
):
    """All tokens of a head have the same weight and the same gate."""
    scores, hub, radius = x
    layer = torch.cat([scores[None], others[:, : len(scores)]])
    low, high = clip
    out = impl.hubkv_refine(
        layer, ratio, None, radius, gamma, minimum=max(low, 0.25), maximum=high, power=power
    )[0]
    assert (out[hub] > out[mark_rivals(scores, hub, radius)]).all()


@pytest.mark.spec("HubKV-9", "HubKV-10")
@given(grid(2, 3, 12), st.sampled_from([0.25, 0.5, 2.0, 4.0]), st.integers(0, 12))
def test_a_heads_weight_cannot_change_what_a_head_keeps_ungated(impl, scores, weight, keep):
    """A head's ranking is that of its discounted scores; the test is exact for a power of two."""
    out = impl.hubkv_refine(scores, 1.0, minimum=weight, maximum=weight)
    kept, expected = (
        refined.sort(descending=True, stable=True).indices[..., :keep].sort().values
        for refined in (out, impl.smd(scores))
    )
    assert_equal(kept, expected)


@pytest.mark.spec("HubKV-11")
@given(INPUTS["protected_mask"])
def test_sinks_come_first_and_the_recent_window_last(impl, x):
    mask, tokens, recent = impl.protected_mask(**x), x["tokens"], x["recent"]
    recent = math.floor(Fraction("0.02") * tokens) if recent is None else recent
    expected = [i < x["sinks"] or tokens - i <= recent for i in range(tokens)]
    assert mask.tolist() == expected


@pytest.mark.spec("HubKV-11")
@pytest.mark.parametrize(("tokens", "recent"), [(49, 0), (50, 1), (2048, 40), (32768, 655)])
def test_the_recent_window_is_a_fiftieth_of_the_sequence(impl, tokens, recent):
    assert_equal(impl.protected_mask(tokens), impl.protected_mask(tokens, 4, recent))
    assert impl.protected_mask(tokens).sum() == 4 + recent


@pytest.mark.spec("HubKV-Prop3")
@given(INPUTS["shift_scores"])
def test_shifted_scores_start_at_zero_and_keep_their_differences(impl, x):
    scores = x["scores"]
    out = impl.shift_scores(scores)
    if scores.numel():
        assert (out.amin(-1) == 0).all()
    assert_close(out.diff(), scores.double().diff())
    assert_equal(impl.shift_scores(out), out)
