"""Head statistics and weights: HubKV §3.3 and A.1."""

from fractions import Fraction
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close, assert_equal, assert_rounded_once
from spec_tests.hubkv.discount.oracle import fractions
from spec_tests.hubkv.head_calibration import oracle
from spec_tests.hubkv.head_calibration.strategies import selectivity, taus
from spec_tests.inputs import INPUTS
from spec_tests.strategies import gaussian_tensor, grid, importance


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


@pytest.mark.spec("HubKV-9")
@given(INPUTS["head_weights"])
def test_a_weight_is_the_clipped_power_of_a_heads_share_of_its_layers_mean(impl, x):
    selectivity = x["selectivity"].double()
    mean = selectivity.mean(-1, keepdim=True)
    power = torch.where(mean > 0, selectivity / mean, 1) ** x["tau"]
    assert_close(impl.head_weights(**x), power.clamp(x["minimum"], x["maximum"]))


@pytest.mark.spec("HubKV-9")
@given(taus, st.integers(1, 9))
def test_a_layer_without_any_selectivity_weighs_one(impl, tau, heads):
    """The quotient is 0 / 0, also with tau = 0."""
    assert_equal(impl.head_weights(torch.zeros(heads), tau), torch.ones(heads))


@pytest.mark.spec("HubKV-9")
@given(grid(3, 8), gaussian_tensor(3))
def test_weights_are_not_rounded_before_they_multiply(impl, scores, weights):
    scores, weights = scores.bfloat16(), weights.abs()
    wide = impl.calibrate(scores.float(), weights)
    assert_rounded_once(impl.calibrate(scores, weights), wide)
