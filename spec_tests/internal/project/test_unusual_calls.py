"""Calls of `optimized` by numbers of other libraries, on extreme scores, and under transforms."""

from enum import IntEnum
from fractions import Fraction
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import optimized
import reference
from optimized import trusted
from reference.contract.enforce import enforce_contract
from reference.contract.types import Ratio
from spec_tests.accuracy import assert_equal
from spec_tests.inputs import GOOD
from spec_tests.report.calls import mapped, tensors


@pytest.mark.parametrize("number", [np.float16(0.1), np.float64(0.1), Fraction(1, 10)])
def test_a_body_gets_numbers_of_python(number):
    def echo(tau: Ratio, causal: bool, settings: reference.HubSettings) -> list[object]:
        return [tau, causal, settings.power]

    settings, yes = reference.HubSettings(power=number), cast(bool, np.True_)
    got = enforce_contract("here", echo)(number, yes, settings=settings)
    assert got == [0.1, True, 0.1]
    assert {*map(type, got)} == {float, bool}


@pytest.mark.parametrize("kv", [reference, optimized])
def test_counts_of_fractions_are_exact_and_members_of_an_enumeration_are_integers(kv):
    """No float is five sixths: the removed share would be more than asked."""
    fraction = Fraction(5, 6)
    assert kv.kept_count(6, ratio=fraction) == kv.retain(torch.rand(6), ratio=fraction).sum() == 1
    assert kv.retain(torch.rand(8), keep=IntEnum("few", {"FOUR": 4}).FOUR).sum() == 4
    keys, x = torch.rand(1, 6, 2), torch.rand(1, 6)
    scored = reference.Scored(x, x < 0)
    assert kv.select(keys, keys, scored, ratio=fraction, refinement=kv.HubSettings()).sum() == 1
    assert torch.equal(kv.gate(x, x / 2, fraction), kv.gate(x, x / 2, 5 / 6))


def test_the_selectivity_of_scores_whose_squares_underflow():
    scores = torch.tensor([[1.0, 0.0, 1.0, 0.5], [3.0, 1.0, 1.0, 1.0]])
    aside = torch.tensor([False, True, False, False]).expand(2, 4)
    for protected in (None, aside):
        expected = reference.selectivity(scores, protected, epsilon=0.0)
        for scale in (1e-22, 1e-30, 1e-37):
            found = optimized.selectivity(scale * scores, protected, epsilon=0.0)
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("huge", [slice(None), slice(1, None)])
def test_gains_whose_sum_is_infinite_are_ranked_in_double_precision(huge):
    weights = torch.arange(32.0).expand(2, 32, 32).clone()
    weights[huge] = 2e38
    weights[huge, 3, 5], weights[huge, :, 9] = 0, 3e38
    assert_equal(optimized.greedy(weights, 5), reference.greedy(weights, 5))


def faked(call, *x):
    """Return tensors of the shapes of a call's results, without values."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        found = call(*map(mode.from_tensor, x))
    return tuple(torch.ones(part.shape, dtype=part.dtype) for part in found)


TRANSFORMS = {
    "jvp": lambda call, *x: torch.func.jvp(call, x, x)[0],
    "grad": lambda call, *x: torch.func.vjp(call, *x)[0],
    "vmap": lambda call, *x: torch.vmap(call)(*(part[None] for part in x)),
    "fake": faked,
}


@pytest.mark.filterwarnings("ignore:There is a performance drop", "ignore:`torch.jit")
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_call_admits_the_transforms_that_the_reference_admits(transform):
    def varies(part: Tensor) -> bool:
        return part.is_floating_point() and part.numel() > 0

    def call(kv: Any, name: str, *x: Tensor) -> tuple[Tensor, ...]:
        given = iter(x)
        inputs = mapped(lambda part: next(given) if varies(part) else part, GOOD[name])
        return tuple(tensors(getattr(kv, name)(**inputs)))

    admitted = 0
    for name, good in GOOD.items():
        x = [*filter(varies, tensors(good))]
        if not x or name == "train_fastkvzip":
            continue
        with trusted():
            try:
                expected = TRANSFORMS[transform](partial(call, reference, name), *x)
            except Exception:  # whatever the reference cannot do
                continue
            found = TRANSFORMS[transform](partial(call, optimized, name), *x)
        torch.testing.assert_close(found, expected, msg=lambda why, name=name: f"{name}: {why}")
        admitted += 1
    assert admitted >= 40
