"""Calls of `optimized` by numbers of other libraries, on extreme scores, and under transforms."""

from fractions import Fraction

import numpy as np
import pytest
import torch

import optimized
import reference
from reference._validation.contract import enforce_contract
from reference._validation.types import Ratio
from spec_tests.accuracy import assert_equal

LAYERS = pytest.mark.parametrize("kv", [reference, optimized])


@pytest.mark.parametrize(
    "number", [np.float16(0.1), np.float32(0.1), np.float64(0.1), Fraction(1, 10), np.int64(1)]
)
def test_a_body_gets_numbers_of_python(number):
    def echo(ratio: Ratio, causal: bool, settings: reference.HubSettings) -> list[object]:
        return [ratio, causal, settings.power]

    got = enforce_contract("here", echo)(
        number, causal=np.True_, settings=reference.HubSettings(power=number)
    )
    assert {*map(type, got)} == {type(1 if number == 1 else 0.1), bool}
    assert got == [1 if number == 1 else 0.1, True, 1 if number == 1 else 0.1]


@LAYERS
def test_a_fraction_refines_as_its_number_does(kv):
    scores = torch.arange(12.0).view(2, 6) % 5
    found = kv.hubkv_refine(scores, Fraction(3, 4), gamma=Fraction(1, 4), tau=np.float32(0.5))
    assert_equal(found, reference.hubkv_refine(scores, 0.75, gamma=0.25, tau=0.5))
