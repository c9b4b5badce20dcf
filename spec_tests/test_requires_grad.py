"""A law of every function of our own layers: gradients."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import reference
from spec_tests.accuracy import assert_as_accurate
from spec_tests.inputs import GOOD, INPUTS
from spec_tests.report.calls import mapped
from spec_tests.test_agreement import OF_MEMORY, takes_floats

every_floating = pytest.mark.parametrize("name", sorted({*filter(takes_floats, GOOD)} - OF_MEMORY))


@pytest.mark.ours_only
@every_floating
@settings(max_examples=4)
@given(data=st.data())
def test_a_call_that_asks_for_gradients_gives_the_same_values(impl, name, data):
    inputs = data.draw(INPUTS[name])
    learning = mapped(lambda x: x.clone().requires_grad_(x.is_floating_point()), inputs)
    result = mapped(Tensor.detach, getattr(impl, name)(**learning))
    assert_as_accurate(result, getattr(reference, name), inputs)
