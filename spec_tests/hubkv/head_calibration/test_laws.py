"""Head statistics and weights: HubKV §3.3 and A.1."""

import math
from fractions import Fraction
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_at_most, assert_close, assert_equal, assert_rounded_once
from spec_tests.hubkv.discount.oracle import fractions
from spec_tests.hubkv.head_calibration import oracle
from spec_tests.hubkv.head_calibration.strategies import selectivity, taus
from spec_tests.inputs import INPUTS
from spec_tests.strategies import gaussian_tensor, grid, importance

unbounded = dict(minimum=2.0**-24, maximum=math.inf)


@st.composite
def selective_heads(draw):
    """Selectivities of a few layers, at least one above 0 in each layer."""
    heads = draw(st.integers(1, 6))
    out = draw(grid(3, heads))
    out[:, draw(st.integers(0, heads - 1))] = draw(st.integers(1, 16)) / 16
    return out


@pytest.mark.spec("HubKV-8")
@given(importance(2, 9, close=False), st.sampled_from([0.0, 1e-6, 0.25]))
def test_selectivity_is_deviation_over_mean(impl, scores, epsilon):
    expected = [oracle.variation(fractions(row), Fraction(epsilon)) for row in scores]
    assert_close(impl.selectivity(scores, None, epsilon), torch.tensor(expected))


@pytest.mark.spec("HubKV-8", "HubKV-12")
@given(selectivity(unprotected=False), st.sampled_from([0.0, 0.5, 1e4]))
def test_selectivity_is_that_of_the_content_alone(impl, x, value):
    out, protected = impl.selectivity(**x), x["protected"]
    replaced = x["scores"].masked_fill(protected, value)
    assert_equal(impl.selectivity(**{**x, "scores": replaced}), out)
    for head in product(*map(range, out.shape)):
        content = x["scores"][head][~protected[head]]
        assert_close(out[head], impl.selectivity(content, None, x["epsilon"]).double())


@pytest.mark.spec("HubKV-8")
@given(st.integers(1, 40), gaussian_tensor(1))
def test_equal_scores_have_no_selectivity(impl, count, score):
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        scores = score.abs().to(dtype).expand(count)
        assert_close(impl.selectivity(scores, None, 0.0), 0.0)


@pytest.mark.spec("HubKV-8")
@given(grid(3, 12), st.sampled_from([2.0**-20, 3.0, 2.0**15]))
def test_scale_does_not_matter_without_epsilon(impl, scores, factor):
    scaled = impl.selectivity(scores * factor, None, 0.0)
    assert_close(scaled, impl.selectivity(scores, None, 0.0), 4.0)


def sample_deviation(selectivity, count):
    """Return the coefficient of variation with the sample's deviation."""
    return selectivity * math.sqrt(count / (count - 1))


@pytest.mark.spec("HubKV-8", "HubKV-9")
def test_which_deviation_matters_between_unequally_long_heads(impl):
    """5 content tokens, and the same five repeated to 100: only population deviations agree."""
    scores = torch.tensor([0.25, 0.75, 0.5, 0.25, 0.75]).repeat(2, 20)
    protected = torch.zeros(2, 100, dtype=torch.bool)
    protected[0, 5:] = True
    population = impl.selectivity(scores, protected, 0.0)
    assert_close(impl.head_weights(population), torch.ones(2))
    pairs = zip(population, (5, 100), strict=True)
    weights = impl.head_weights(torch.stack([sample_deviation(c, n) for c, n in pairs]))
    assert weights[0] > 1.02
    assert weights[1] < 0.98


@pytest.mark.spec("HubKV-9")
@given(INPUTS["head_weights"])
def test_weights_stay_within_the_bounds(impl, x):
    out = impl.head_weights(**x)
    assert_at_most(torch.tensor(x["minimum"]), out)
    assert_at_most(out, torch.tensor(x["maximum"]))


@pytest.mark.spec("HubKV-9")
@given(selective_heads(), taus, st.sampled_from([2.0**-10, 3.0, 2.0**10]))
def test_weights_forget_the_size_of_the_selectivity(impl, selectivity, tau, factor):
    scaled = impl.head_weights(selectivity * factor, tau)
    assert_close(scaled, impl.head_weights(selectivity, tau))


@pytest.mark.spec("HubKV-9")
@given(selective_heads())
def test_weights_all_are_one_at_tau_zero(impl, selectivity):
    assert_equal(impl.head_weights(selectivity, 0.0), torch.ones_like(selectivity))


@pytest.mark.spec("HubKV-9")
@given(taus, st.integers(1, 9))
def test_a_layer_without_any_selectivity_weighs_one(impl, tau, heads):
    """The quotient is 0 / 0, also with tau = 0."""
    assert_equal(impl.head_weights(torch.zeros(heads), tau), torch.ones(heads))


@pytest.mark.spec("HubKV-9")
@given(selective_heads())
def test_unclipped_weights_average_one_at_tau_one(impl, selectivity):
    weights = impl.head_weights(selectivity, 1.0, **unbounded)
    assert_close(weights.mean(-1), torch.ones(3))


@pytest.mark.spec("HubKV-9")
@given(INPUTS["head_weights"])
def test_a_more_selective_head_weighs_no_less(impl, x):
    out, selectivity = impl.head_weights(**x), x["selectivity"]
    if out.numel():
        order = selectivity.argsort(-1)
        ranked = out.gather(-1, order)
        assert_at_most(ranked[..., :-1], ranked[..., 1:])


@pytest.mark.spec("HubKV-9")
@given(selective_heads(), taus)
def test_layers_are_averaged_apart(impl, layers, tau):
    together = impl.head_weights(layers, tau)
    for one, weights in zip(layers, together, strict=True):
        assert_close(impl.head_weights(one, tau), weights)


@pytest.mark.spec("HubKV-9")
@given(grid(3, 8), gaussian_tensor(3))
def test_weights_are_not_rounded_before_they_multiply(impl, scores, weights):
    scores, weights = scores.bfloat16(), weights.abs()
    wide = impl.calibrate(scores.float(), weights)
    assert_rounded_once(impl.calibrate(scores, weights), wide)
