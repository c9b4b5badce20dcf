"""What is set aside before refinement, and what the 1 printed for it is worth: HubKV A.1."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_at_most, assert_equal
from spec_tests.draw import grid
from spec_tests.inputs import INPUTS
from spec_tests.oracles import hubkv as oracle


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


@pytest.mark.spec("HubKV-11")
def test_a_flat_window_can_exceed_the_budget(impl):
    """A window of 4096 beside four sinks at 32768 tokens, of which 95 % should go."""
    budget = math.floor((1 - Fraction("0.95")) * 32768)
    assert impl.protected_mask(32768, 4, 4096).sum() == 4100
    assert budget == 1638
    assert impl.protected_mask(32768).sum() < budget


def crowded_scores():
    """Two heads of 200 tokens: 12 protected, then in the first head 23 isolated hubs of 0.999."""
    scores = torch.full((2, 200), 0.01)
    scores[0, 20:135:5] = 0.999
    scores[1] = 0.5
    protected = torch.zeros(200, dtype=torch.bool)
    protected[:4], protected[-8:] = True, True
    return scores, protected


@pytest.mark.spec("HubKV-13")
def test_content_can_outrank_the_one_of_a_protected_token(impl):
    """At ratio 0.95 a head of weight 1.2 reaches 1.1805 times its raw scores."""
    scores, protected = crowded_scores()
    out = impl.hubkv_refine(scores, 0.95, protected.expand(scores.shape))
    assert (out[0] > 1.179).sum() == 23
    assert_at_most(out, torch.tensor(1.1805))
    kept = oracle.best(out[0], 20)
    assert not (kept & protected).any(), "a plain Top-K spares a protected token after all"


@pytest.mark.spec("HubKV-13")
def test_ranking_by_the_mask_spares_what_the_printed_one_does_not(impl):
    scores, protected = crowded_scores()
    out = impl.hubkv_refine(scores, 0.95, protected.expand(scores.shape))
    kept = oracle.best(out[0].masked_fill(protected, torch.inf), 20)
    assert (kept & protected).sum() == 12
    assert kept.sum() == 20


@pytest.mark.spec("HubKV-12")
def test_a_protected_neighbour_would_suppress_a_hub_and_flatten_its_head(impl):
    """The token beside a strong sink keeps its score, and the sink's score its head's weight."""
    scores = torch.tensor([[8.0, 0.5, 0.25, 0.25, 0.25, 0.25], [0.25, 0.5, 0.25, 0.25, 0.25, 0.25]])
    protected = torch.tensor([True] + [False] * 5).expand(2, 6)
    out = impl.hubkv_refine(scores, 1.0, protected, radius=1)
    assert out[:, 1].tolist() == [0.5, 0.5]


@pytest.mark.spec("HubKV-Prop3")
@given(INPUTS["shift_scores"])
def test_shifted_scores_start_at_zero_and_keep_their_differences(impl, x):
    scores = x["scores"]
    out = impl.shift_scores(scores)
    if scores.numel():
        assert (out.amin(-1) == 0).all()
    assert_equal(out.diff(), scores.diff())
    assert_equal(impl.shift_scores(out), out)


@pytest.mark.spec("HubKV-Prop3")
@given(grid(2, 9, low=-8, high=8), st.integers(0, 100))
def test_shifted_scores_can_be_refined(impl, scores, percent):
    shifted = impl.shift_scores(scores)
    out = impl.hubkv_refine(shifted, percent / 100)
    assert_at_most(torch.zeros(()), out)
    assert_at_most(out, 1.2 * shifted)
