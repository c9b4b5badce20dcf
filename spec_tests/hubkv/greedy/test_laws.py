"""The distance from the optimum: HubKV §2.2, §3.1 and Appendix J.4."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.hubkv.coverage import oracle
from spec_tests.hubkv.coverage.strategies import sixteenths_with_ties
from spec_tests.hubkv.discount.oracle import fractions
from spec_tests.hubkv.discount.strategies import gammas
from spec_tests.inputs import INPUTS
from spec_tests.strategies import grid

epsilons = st.sampled_from([Fraction(1, 64), Fraction(1, 32)])
discounts = st.sampled_from([Fraction(1, 2), Fraction(3, 4)])


@st.composite
def budgeted(draw):
    """Weights small enough to try every set, and a budget."""
    tokens = draw(st.integers(2, 7))
    return dict(
        weights=draw(sixteenths_with_ties(tokens, tokens)).double(),
        keep=draw(st.integers(1, tokens)),
    )


@st.composite
def positive_scores(draw):
    """Non-negative scores with at least one above 0: the premise of Proposition 4.

    A budget of one is the case of equality. There scores are close, so that gamma decides.
    """
    tokens, alone = draw(st.integers(1, 7)), draw(st.booleans())
    scores = draw(grid(tokens, low=6 if alone else 0, high=8)).double()
    scores[draw(st.integers(0, tokens - 1))] += 1 / 16
    return scores, 1 if alone else draw(st.integers(1, tokens)), draw(st.integers(0, 3))


def worth(impl, cluster, radius, kept):
    """Return the utility of a set of the redundant cluster."""
    scores = torch.tensor([float(s) for s in cluster.scores], dtype=torch.float64)
    shape = impl.window_kernel(len(scores), radius, torch.float64)
    return impl.coverage(impl.coverage_weights(scores, shape), cluster.mask(kept))


def core_selection(impl, scores, keep, radius, gamma):
    """Return the tokens that discounting and Top-K select."""
    return oracle.top(impl.smd(scores, radius, gamma), keep)


@pytest.mark.spec("HubKV-Greedy")
@given(budgeted())
def test_greedy_reaches_its_share_of_the_optimum(impl, x):
    w, keep = fractions(x["weights"]), x["keep"]
    # the bound of Nemhauser, Wolsey and Fisher for a budget; its limit is 1 - 1/e
    share = 1 - (1 - Fraction(1, keep)) ** keep
    picked = impl.greedy(**x).tolist()
    assert len(set(picked)) == keep
    assert oracle.utility(w, picked) >= share * oracle.optimum(w, keep)


@pytest.mark.spec("HubKV-Greedy")
@given(budgeted())
def test_each_pick_gains_the_most_and_ties_go_to_the_lowest_index(impl, x):
    w, picked = fractions(x["weights"]), impl.greedy(**x).tolist()
    for t, pick in enumerate(picked):
        left = [k for k in range(len(w)) if k not in picked[:t]]
        assert pick == max(left, key=lambda k: (oracle.gain(w, k, picked[:t]), -k))


@pytest.mark.spec("HubKV-Greedy")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@given(grid(24, high=4), st.sampled_from([0.5, 1.0, 2.5]))
def test_each_pick_gains_the_most_up_to_rounding(impl, dtype, scores, deviation):
    """Inexact sums may decide a tie either way, so that gains are compared, not picks."""
    shape = impl.gaussian_kernel(24, deviation, torch.float64)
    weights = impl.coverage_weights(scores.double(), shape).to(dtype)
    for select in (impl.greedy, impl.lazy_greedy):
        picked = select(weights, 24).tolist()
        before = torch.zeros(24, 24, dtype=torch.bool)
        for t in range(24):
            before[t, picked[:t]] = True
        gains = impl.marginal_gain(weights.double().expand(24, 24, 24), before)
        taken = gains[range(24), picked].to(dtype)
        assert_close(taken, gains.amax(-1))


@pytest.mark.spec("HubKV-Greedy")
@given(INPUTS["greedy"])
def test_lazy_greedy_picks_what_greedy_picks(impl, x):
    assert_equal(impl.lazy_greedy(**x), impl.greedy(**x))


@pytest.mark.spec("HubKV-Prop4")
@given(positive_scores(), gammas, st.integers(0, 3))
def test_the_core_reaches_one_budgetth_of_the_optimum(impl, x, gamma, radius):
    scores, keep, reach = x
    w = oracle.weights(fractions(scores), oracle.window_kernel_values(len(scores), reach))
    selected = core_selection(impl, scores, keep, radius, gamma)
    assert keep * oracle.utility(w, selected) >= oracle.optimum(w, keep)


def trap(impl, budget, reach, gamma=Fraction(1, 2), eps=Fraction(1, 64)):
    """Return the remark's cluster after checking that the core keeps its plateau.

    Only the discount decides: of hubs just above gamma the core keeps every one.
    """
    for hub in (gamma * (1 + 2 * eps), gamma * (1 - 2 * eps)):
        cluster = oracle.redundant_cluster(budget, reach, hub)
        scores = torch.tensor([float(s) for s in cluster.scores])
        selected = core_selection(impl, scores, budget, 2, float(gamma))
        assert sorted(selected) == (cluster.plateau if hub < gamma else cluster.spread)
    return cluster


@pytest.mark.spec("HubKV-Rem")
@given(st.integers(2, 6), st.integers(2, 20), discounts, epsilons)
def test_the_core_keeps_the_whole_plateau_just_if_the_hubs_are_below_gamma(
    impl, budget, reach, gamma, eps
):
    cluster = trap(impl, budget, reach, gamma, eps)
    hub = gamma * (1 - 2 * eps)
    kept, spread = 1 + Fraction(budget - 1, 2 * reach + 1), 1 + (budget - 1) * hub
    assert_close(worth(impl, cluster, reach, cluster.plateau), float(kept))
    assert_close(worth(impl, cluster, reach, cluster.spread), float(spread))


@pytest.mark.spec("HubKV-Rem")
@given(st.integers(3, 5), discounts, epsilons)
def test_a_wide_kernel_leaves_the_core_two_budgetths_of_the_optimum(impl, budget, gamma, eps):
    """The three conditions: gamma >= 1/2, 2 eps (B - 1) < 1, and a kernel of this width."""
    width = budget * (budget - 1) / (1 - 2 * eps * (budget - 1))
    reach = max(2, -(-(width - 1) // 2))
    cluster = trap(impl, budget, reach, gamma, eps)
    w = oracle.weights(cluster.scores, oracle.window_kernel_values(len(cluster.scores), reach))
    best = oracle.optimum(w, budget, cluster.plateau + cluster.hubs)
    assert best == oracle.utility(w, cluster.spread)
    assert budget * oracle.utility(w, cluster.plateau) <= 2 * best


@pytest.mark.spec("HubKV-Rem")
@pytest.mark.parametrize("budget", [5, 8, 16])
@given(st.sampled_from([0, 2]), discounts, epsilons)
def test_a_radius_of_half_the_plateau_leaves_the_core_order_one_budgetth(
    impl, budget, more, gamma, eps
):
    """With 2R + 1 >= B the ratio is at most 2 / (B h), where h is the score of a hub."""
    reach, hub = budget // 2 + more, gamma * (1 - 2 * eps)
    cluster = trap(impl, budget, reach, gamma, eps)
    kept = worth(impl, cluster, reach, cluster.plateau)
    spread = worth(impl, cluster, reach, cluster.spread)
    assert budget * float(hub) * kept < 2 * spread


@pytest.mark.spec("HubKV-Rem")
def test_under_a_narrow_kernel_the_optimum_also_spreads_over_the_plateau(impl):
    """The ratio to the optimum tends to 1 / (1 + 4 gamma (1 - 2 eps)), also a constant."""
    cluster, hub = trap(impl, 6, 2), Fraction(31, 64)
    w = oracle.weights(cluster.scores, oracle.window_kernel_values(len(cluster.scores), 2))
    best = [cluster.plateau[0], cluster.plateau[5], *cluster.hubs[:4]]
    assert oracle.optimum(w, 6, cluster.plateau + cluster.hubs) == oracle.utility(w, best)
    assert oracle.utility(w, best) == 2 + 4 * hub
    assert_close(worth(impl, cluster, 2, best), float(2 + 4 * hub))
