"""Laws of every function of our own layers: gradients, and huge or tiny numbers."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import reference
from spec_tests.accuracy import assert_as_accurate
from spec_tests.inputs import GOOD, INPUTS
from spec_tests.report.calls import mapped, tensors
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


@pytest.mark.ours_only
@pytest.mark.argument_checks
@every_floating
@settings(max_examples=8)
@given(data=st.data())
def test_beyond_the_domain_no_result_is_nan(impl, name, data):
    """At 2^±100 squares of float32 numbers underflow or overflow; the call may also be refused."""
    inputs = data.draw(INPUTS[name])
    for power in (2.0**-100, 2.0**100):
        far = {name: scale(value, power) for name, value in inputs.items()}
        far |= {"log_sum_exp": None} if "log_sum_exp" in far else {}
        try:
            result = getattr(impl, name)(**far)
        except ValueError:
            continue
        assert not any(bool(tensor.isnan().any()) for tensor in tensors(result))


def scale(value: Any, power: float) -> Any:
    """Return a value with its tensors times `power`, except half precision and the field `left`.

    Half precision cannot hold the product. Of two low-rank factors only one is scaled.
    """
    if hasattr(value, "_fields"):
        parts = value._asdict().items()
        return value._replace(**{k: scale(part, power) for k, part in parts if k != "left"})
    if isinstance(value, tuple):
        return tuple(scale(part, power) for part in value)
    single = isinstance(value, Tensor) and value.is_floating_point() and value.itemsize >= 4
    return value * power if single else value
