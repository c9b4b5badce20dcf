"""Attention and its deviation: HEX §3.1."""

import math
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given

from spec_tests.accuracy import assert_close
from spec_tests.attention import oracle, strategies
from spec_tests.attention.strategies import attending, sizes


def largest(values):
    """Return the largest magnitude of the values, which bounds every output."""
    return values.abs().amax()


def in_logits(x):
    """Return the factor by which rounding of a logit changes a weight."""
    group = x["queries"].shape[-3] // x["keys"].shape[-3]
    keys = x["keys"].abs().repeat_interleave(group, -3)
    return 1 + (x["queries"].abs() @ keys.mT).amax() * (x["scale"] or 1)


@pytest.mark.spec("HEX-3.1a")
@given(attending(sizes(least=1)))
def test_agrees_with_scalar_loops(impl, x):
    weights, out = impl.attention_weights(**strategies.without_values(x)), impl.attention(**x)
    queries, keys, values = (x[name].double() for name in ("queries", "keys", "values"))
    group, size = queries.shape[-3] // keys.shape[-3], in_logits(x)
    for *batch, h in product(*map(range, queries.shape[:-2])):
        shared = (*batch, h // group)
        expected_weights, expected = oracle.attend_one_head(
            queries[(*batch, h)].tolist(),
            keys[shared].tolist(),
            values[shared].tolist(),
            x["causal"],
            x["scale"],
        )
        assert_close(weights[(*batch, h)], torch.tensor(expected_weights).double(), size)
        assert_close(out[(*batch, h)], torch.tensor(expected).double(), size * largest(values))


@pytest.mark.spec("HEX-3.1a")
@given(attending(sizes(least=1), numbers=[strategies.on_grid]), strategies.shifts)
def test_a_weight_is_the_power_of_what_a_logit_exceeds_the_log_sum_exp_by(impl, x, shift):
    x = strategies.with_log_sum_exp(x)
    weights = impl.attention_weights(**x | dict(log_sum_exp=None)).double()
    x["log_sum_exp"] += shift
    assert_close(impl.attention_weights(**x), weights * math.exp(-shift), in_logits(x))


long: Any = [torch.randn(h, 40, 4, generator=torch.Generator().manual_seed(h)) for h in (4, 2)]
sums = strategies.log_sum_exp(*long)


@pytest.mark.argument_checks
@pytest.mark.spec("HEX-3.1a", "HEX-3.3a", "GraphKV-H2O", "GraphKV-SnapKV")
@pytest.mark.parametrize("name", ["attention_weights", "attention_mass", "h2o_mass", "snapkv"])
def test_a_log_sum_exp_that_is_not_finite_is_refused(impl, name):
    function = getattr(impl, name)
    function(*long, log_sum_exp=sums)
    for bad in (-torch.inf, torch.inf, torch.nan):
        with impl.refuses("log_sum_exp"):
            function(*long, log_sum_exp=sums.masked_fill(torch.arange(40) == 7, bad))


@pytest.mark.spec("HEX-3.1b")
@given(attending(sizes(least=1), compressed=True))
def test_the_deviation_is_the_distance_between_the_outputs(impl, x):
    original = {name: x[name] for name in ("queries", "keys", "values", "causal", "scale")}
    compressed = dict(keys=x["compressed_keys"], values=x["compressed_values"])
    gap = impl.attention(**original) - impl.attention(**original | compressed)
    expected = gap.double().square().sum(-1).sqrt()
    size = in_logits(x) * sum(largest(x[n]) for n in ("values", "compressed_values"))
    assert_close(impl.attention_error(**x), expected, size)
