"""Hub detection and discounting: HubKV §3.3, A.1 and Appendix J.2."""

from fractions import Fraction

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close, assert_rounded_once
from spec_tests.hubkv.discount import oracle
from spec_tests.hubkv.discount.strategies import gammas
from spec_tests.inputs import INPUTS
from spec_tests.strategies import CROWD, grid, importance

every_dtype = pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str
)

dyadic = st.sampled_from([0.25, 0.5, 0.75])


@st.composite
def window_with_a_unique_maximum(draw):
    """Scores with a hub that strictly beats every rival of its window: Theorem 1's premise.

    The lead may be tiny, and a rival may be second in the whole row.
    """
    radius, count = draw(st.integers(0, 4)), draw(st.integers(1, 20))
    scores = draw(grid(count, low=0, high=8))
    hub = draw(st.integers(0, count - 1))
    window = slice(max(0, hub - radius), hub + radius + 1)
    if draw(st.booleans()):
        scores[window.start] = scores.max()
    scores[hub] = scores[window].max() + draw(st.sampled_from([1 / 16, 2.0**-12, 2.0**-20]))
    return scores, hub, radius


def mark_rivals(scores, hub, radius):
    """Mark the other tokens of a hub's window."""
    distance = (torch.arange(len(scores)) - hub).abs()
    return (distance <= radius) & (distance > 0)


@st.composite
def long_row(draw):
    """More tokens than a kernel's block, with equal scores across every 256th token."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    scores = torch.randint(0, 256, (2, 600), generator=generator) / 256
    for border in (256, 512):
        scores[:, border - 3 : border + 3] = draw(st.sampled_from([0.0, 0.5, 1.0]))
    return scores


@pytest.mark.spec("HubKV-6")
@given(INPUTS["hub_mask"])
def test_no_two_hubs_are_within_a_radius(impl, x):
    hubs = impl.hub_mask(**x)
    for row in hubs.reshape(-1, hubs.shape[-1]) if hubs.numel() else []:
        assert (row.nonzero().flatten().diff() > x["radius"]).all()


@pytest.mark.spec("HubKV-6", "HubKV-12")
@given(importance(12, low=-4, high=4), st.integers(0, 13), st.lists(st.booleans(), min_size=12))
@example(CROWD, 2, [False] * 12)
def test_a_hub_has_no_stronger_or_earlier_equal_in_its_window(impl, scores, radius, bits):
    mask = torch.tensor(bits[:12])
    expected = oracle.hubs(oracle.fractions(scores), radius, mask.tolist())
    assert impl.hub_mask(scores, radius, mask).tolist() == expected


@pytest.mark.spec("HubKV-6")
@given(long_row(), st.integers(1, 4))
def test_windows_reach_across_a_long_row(impl, scores, radius):
    scores = scores + 1  # positive scores, so that only a hub keeps its score
    windows = torch.nn.functional.pad(scores, (radius, radius)).unfold(-1, 2 * radius + 1, 1)
    assert torch.equal(impl.smd(scores, radius) == scores, windows.argmax(-1) == radius)


@pytest.mark.spec("HubKV-7")
@given(INPUTS["discount"])
def test_a_hub_keeps_its_score(impl, x):
    out = impl.discount(**x)
    assert torch.equal(out[x["hubs"]], x["scores"][x["hubs"]])


@pytest.mark.spec("HubKV-7")
@given(INPUTS["discount"])
def test_a_token_that_is_no_hub_reads_gamma_times_its_score(impl, x):
    out, others = impl.discount(**x), ~x["hubs"]
    assert_close(out[others], x["gamma"] * x["scores"][others].double())


@pytest.mark.spec("HubKV-6", "HubKV-7")
@given(importance(12), st.integers(0, 13), gammas)
def test_every_token_of_a_row_reads_its_score_or_gamma_times_it(impl, scores, radius, gamma):
    """At any distance from the hub."""
    expected = oracle.discounted(oracle.fractions(scores), radius, Fraction(gamma))
    assert_close(impl.smd(scores, radius, gamma), torch.tensor([float(s) for s in expected]))


@pytest.mark.spec("HubKV-7")
@every_dtype
@given(scores=long_row(), gamma=st.sampled_from([0.1, 0.3, 0.5, 0.7]))
def test_a_discounted_score_is_rounded_once(impl, dtype, scores, gamma):
    scores = scores.to(dtype)
    out = impl.smd(scores, 2, gamma)
    others = out != scores
    assert_rounded_once(out[others], gamma * scores[others].double())


@pytest.mark.spec("HubKV-7")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@given(scores=long_row(), gamma=dyadic)
def test_a_product_halfway_between_two_numbers_goes_to_the_even_one(impl, dtype, scores, gamma):
    scores = scores.to(dtype)
    out = impl.smd(scores, 2, gamma)
    exact = gamma * scores.double()  # the product is exact in float32 as well
    assert torch.equal(out, torch.where(out == scores, scores, exact.to(dtype)))


@pytest.mark.spec("HubKV-12")
@given(INPUTS["smd"], st.sampled_from([0.0, 0.5, 4.0]))
def test_protected_tokens_suppress_nothing(impl, x, value):
    if x["protected"] is not None:
        replaced = x["scores"].masked_fill(x["protected"], value)
        before, after = impl.smd(**x), impl.smd(**{**x, "scores": replaced})
        assert torch.equal(before[~x["protected"]], after[~x["protected"]])
        assert torch.equal(after[x["protected"]], replaced[x["protected"]])


@pytest.mark.spec("HubKV-Thm1")
@given(window_with_a_unique_maximum(), gammas)
def test_a_unique_maximum_outranks_its_window_by_the_discount(impl, x, gamma):
    """As in the proof: a neighbour is gamma times a smaller number."""
    scores, hub, radius = x
    out = impl.smd(scores, radius, gamma)
    others = out[mark_rivals(scores, hub, radius)]
    assert (out[hub] > others).all()
    assert (gamma * out[hub] > others).all()


@pytest.mark.spec("HubKV-Thm1")
@given(window_with_a_unique_maximum(), dyadic, st.fractions(0, 1), st.fractions(0, 4))
def test_hub_dominance_holds_exactly_through_weight_and_gate(impl, x, gamma, strength, weight):
    """Products of such scores and factors are exact."""
    scores, hub, radius = x
    row = oracle.fractions(scores)
    smd = oracle.fractions(impl.smd(scores.double(), radius, gamma))
    assert smd == oracle.discounted(row, radius, Fraction(gamma))
    final = [(1 - strength) * s + strength * weight * u for s, u in zip(row, smd, strict=True)]
    for rival in mark_rivals(scores, hub, radius).nonzero().flatten().tolist():
        assert smd[hub] > smd[rival]
        assert final[hub] > final[rival] or (strength == 1 and weight == 0)
