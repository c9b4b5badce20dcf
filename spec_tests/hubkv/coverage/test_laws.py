"""The coverage objective: HubKV §2.2, §3.2 and Appendix J.1, J.2."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_at_most, assert_close, assert_equal
from spec_tests.hubkv.coverage import oracle
from spec_tests.hubkv.coverage.strategies import coverage_kernel, sixteenths_with_ties
from spec_tests.hubkv.discount.oracle import fractions
from spec_tests.hubkv.discount.strategies import gammas
from spec_tests.strategies import grid


@st.composite
def exact_weights(draw):
    """Weights whose sums float64 holds exactly."""
    tokens = draw(st.integers(2, 5))
    return draw(sixteenths_with_ties(tokens, tokens)).double()


@st.composite
def covering(draw):
    """Scores, a kernel that covers every token, and the exact weights of the two."""
    tokens = draw(st.integers(1, 6))
    scores, shape = draw(grid(tokens)).double(), draw(coverage_kernel(tokens)).double()
    return scores, shape, oracle.weights(fractions(scores), fractions(shape))


@st.composite
def beside_a_hub(draw):
    """Scores with one strict maximum, a neighbour in its window, and the exact weights."""
    tokens, radius = draw(st.integers(2, 8)), draw(st.integers(1, 3))
    scores, shape = (
        draw(grid(tokens, low=1, high=8)).double(),
        draw(coverage_kernel(tokens)).double(),
    )
    hub = draw(st.integers(0, tokens - 1))
    scores[hub] = draw(st.sampled_from([9 / 16, 1.0]))
    window = [i for i in range(tokens) if 0 < abs(i - hub) <= radius]
    w = oracle.weights(fractions(scores), fractions(shape))
    return scores, shape, w, radius, hub, draw(st.sampled_from(window))


def utilities(impl, weights):
    """Return F of every subset."""
    sets = oracle.subsets(len(weights))
    return sets, impl.coverage(weights.expand(len(sets), -1, -1), sets)


@pytest.mark.spec("HubKV-Prop1")
@given(exact_weights())
def test_a_larger_set_is_never_worth_less(impl, weights):
    worth = utilities(impl, weights)[1].tolist()
    for larger in range(len(worth)):
        for smaller in range(larger + 1):
            assert smaller & larger != smaller or worth[smaller] <= worth[larger]


@pytest.mark.spec("HubKV-2", "HubKV-Prop1")
@given(exact_weights())
def test_returns_diminish_for_all_nested_sets(impl, weights):
    worth = utilities(impl, weights)[1].tolist()
    for larger in range(len(worth)):
        for smaller in [a for a in range(larger + 1) if a & larger == a]:
            for new in [1 << v for v in range(len(weights)) if not larger >> v & 1]:
                early, late = worth[smaller | new], worth[larger | new]
                assert early - worth[smaller] >= late - worth[larger]


@pytest.mark.spec("HubKV-3.2a")
@given(exact_weights())
def test_a_marginal_gain_is_what_the_utility_gains(impl, weights):
    sets, worth = utilities(impl, weights)
    gains = impl.marginal_gain(weights.expand(len(sets), -1, -1), sets)
    for k in range(len(weights)):
        joined = torch.arange(len(sets)) | 1 << k
        assert_equal(gains[:, k], worth[joined] - worth)


@pytest.mark.spec("HubKV-4", "HubKV-Def1")
@given(covering())
def test_coverage_is_the_sum_of_the_best_weights(impl, x):
    scores, shape, w = x
    sets, worth = utilities(impl, impl.coverage_weights(scores, shape))
    exact = [float(oracle.utility(w, oracle.members(kept))) for kept in sets]
    assert_close(worth, torch.tensor(exact, dtype=torch.float64))


@pytest.mark.spec("HubKV-Prop1", "HubKV-Def1")
@given(covering())
def test_one_token_is_worth_its_score(impl, x):
    scores, shape, w = x
    assert [oracle.utility(w, [j]) for j in range(len(scores))] == fractions(scores)
    alone = torch.eye(len(scores), dtype=torch.bool)
    weights = impl.coverage_weights(scores, shape).expand(len(scores), -1, -1)
    assert_close(impl.coverage(weights, alone), scores)
    assert_close(impl.marginal_gain(weights, alone & ~alone)[0], scores)


@pytest.mark.spec("HubKV-5")
@given(covering())
def test_a_column_sums_to_its_score(impl, x):
    scores, shape, _ = x
    assert_close(impl.coverage_weights(scores, shape).sum(-2), scores)


@pytest.mark.spec("HubKV-Prop2")
@given(beside_a_hub())
def test_beside_a_hub_the_gain_is_what_the_overlap_leaves(impl, x):
    scores, shape, w, _, hub, i = x
    share, gain = oracle.overlap(w, i, hub), oracle.gain(w, i, [hub])
    assert gain == (1 - share) * Fraction(scores[i].item())
    weights = impl.coverage_weights(scores, shape)
    kept = torch.arange(len(scores)) == hub
    assert_close(impl.overlap(weights, hub)[i], float(share))
    assert_close(impl.marginal_gain(weights, kept)[i], float(gain))


@pytest.mark.spec("HubKV-14", "HubKV-Prop2")
@given(beside_a_hub(), gammas, st.sampled_from([1 / 16, 1 / 4]))
def test_the_discounted_score_is_within_eta_of_the_gain(impl, x, gamma, slack):
    scores, shape, w, radius, hub, i = x
    least = abs(oracle.overlap(w, i, hub) - (1 - Fraction(gamma)))
    kept = torch.arange(len(scores)) == hub
    gain = impl.marginal_gain(impl.coverage_weights(scores, shape), kept)[i]
    discounted = impl.smd(scores, radius, gamma)[i]
    # the least eta is reached; a larger eta bounds strictly
    assert_close((gain - discounted).abs(), float(least) * scores[i])
    eta = float(least) + slack
    assert (gamma - eta) * scores[i] < gain < (gamma + eta) * scores[i]


@pytest.mark.spec("HubKV-14", "HubKV-Prop2")
@given(beside_a_hub(), gammas, st.booleans())
def test_no_gain_beside_a_hub_is_below_the_discounted_score_by_more_than_eta(impl, x, gamma, tight):
    """The first inequality with the least eta, and the second one with a larger eta."""
    scores, shape, w, _, hub, i = x
    eta = max(Fraction(0), oracle.overlap(w, i, hub) - (1 - Fraction(gamma)))
    eta = eta if tight else eta + Fraction(1, 4)
    kept = torch.arange(len(scores)) == hub
    gain = impl.marginal_gain(impl.coverage_weights(scores, shape), kept)[i]
    base = scores[i]  # gains are sums of differences of numbers of this size
    assert_at_most(float(Fraction(gamma) - eta) * base + base, gain + base)


@pytest.mark.spec("HubKV-14", "HubKV-Prop2")
@given(beside_a_hub(), gammas)
def test_a_gain_beside_a_hub_and_others_is_at_most_that_beside_the_hub(impl, x, gamma):
    """Of all sets with the hub, the hub alone leaves the largest gain, as the paper says."""
    scores, shape, w, _, hub, i = x
    eta = max(Fraction(0), 1 - Fraction(gamma) - oracle.overlap(w, i, hub))
    sets = oracle.subsets(len(scores))
    sets = sets[sets[:, hub]]
    weights = impl.coverage_weights(scores, shape).expand(len(sets), -1, -1)
    gains = impl.marginal_gain(weights, sets)[:, i]
    alone = gains[sets.sum(-1) == 1]
    assert_at_most(gains, alone)
    assert_at_most(alone, float(Fraction(gamma) + eta) * scores[i])


@pytest.mark.spec("HubKV-Prop2")
@given(grid(13, low=1, high=16), st.integers(4, 8))
def test_a_kernel_like_the_hub_window_overlaps_by_four_and_three_fifths(impl, scores, hub):
    """So the default discount of one half is too strong at both distances."""
    scores[hub] = 1.0
    weights = impl.coverage_weights(scores.double(), impl.window_kernel(13, 2, torch.float64))
    shares = impl.overlap(weights, hub)
    fifths = [max(0, 5 - abs(i - hub)) / 5 for i in range(2, 11)]
    assert_close(shares[2:11], torch.tensor(fifths, dtype=torch.float64))
