"""Hub detection and discounting: HubKV §3.3, A.1 and Appendix J.2."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.inputs import INPUTS
from spec_tests.inputs.draw import grid
from spec_tests.inputs.hubkv import gammas


@st.composite
def window_with_a_unique_maximum(draw):
    """Scores with a hub that strictly beats every rival of its window: Theorem 1's premise."""
    radius, count = draw(st.integers(0, 4)), draw(st.integers(1, 20))
    scores = draw(grid(count, low=0, high=8))
    hub = draw(st.integers(0, count - 1))
    window = slice(max(0, hub - radius), hub + radius + 1)
    scores[hub] = scores[window].max() + 1 / 16
    return scores, hub, radius


@pytest.mark.spec("HubKV-6")
@given(INPUTS["hub_mask"])
def test_the_strongest_content_token_is_a_hub(impl, x):
    hubs, scores = impl.hub_mask(**x), x["scores"]
    if x["protected"] is not None:
        scores = scores.masked_fill(x["protected"], -torch.inf)
    if scores.shape[-1]:
        best = hubs.gather(-1, scores.argmax(-1, keepdim=True))
        assert (best[..., 0] | (scores.amax(-1) == -torch.inf)).all()


@pytest.mark.spec("HubKV-6")
@given(INPUTS["hub_mask"])
def test_no_two_hubs_are_within_a_radius(impl, x):
    hubs = impl.hub_mask(**x)
    for row in hubs.reshape(-1, hubs.shape[-1]) if hubs.numel() else []:
        assert (row.nonzero().flatten().diff() > x["radius"]).all()


@pytest.mark.spec("HubKV-7")
@given(INPUTS["discount"])
def test_a_hub_keeps_its_score(impl, x):
    out = impl.discount(**x)
    assert torch.equal(out[x["hubs"]], x["scores"][x["hubs"]])


@pytest.mark.spec("HubKV-12")
@given(INPUTS["smd"], st.sampled_from([0.0, 0.5, 4.0]))
def test_protected_tokens_suppress_nothing(impl, x, value):
    if x["protected"] is not None:
        replaced = x["scores"].masked_fill(x["protected"], value)
        before, after = impl.smd(**x), impl.smd(**{**x, "scores": replaced})
        assert torch.equal(before[~x["protected"]], after[~x["protected"]])


@pytest.mark.spec("HubKV-Thm1")
@given(window_with_a_unique_maximum(), gammas)
def test_a_unique_maximum_outranks_its_window(impl, x, gamma):
    scores, hub, radius = x
    out = impl.smd(scores, radius, gamma)
    window = torch.zeros_like(scores, dtype=torch.bool)
    window[max(0, hub - radius) : hub + radius + 1] = True
    window[hub] = False
    assert (out[hub] > out[window]).all()
