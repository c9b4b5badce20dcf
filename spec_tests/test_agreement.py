"""Every function, every implementation: the reference's answer, signature and manners."""

import inspect
from copy import deepcopy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import reference
from spec_tests.accuracy import assert_as_accurate, assert_equal, cast
from spec_tests.inputs import CORNERS, INPUTS

every_function = pytest.mark.parametrize("name", sorted(INPUTS))
manners = settings(max_examples=20)  # shapes and layouts, more than values
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def test_inputs_cover_the_api():
    functions = [n for n in reference.__all__ if inspect.isfunction(getattr(reference, n))]
    assert sorted(INPUTS) == sorted(functions)


@every_function
def test_signature(impl, name):
    """Same names, order and defaults; an implementation may add optional parameters."""
    spec = list(inspect.signature(getattr(reference, name)).parameters.values())
    ours = list(inspect.signature(getattr(impl, name)).parameters.values())
    assert [(p.name, p.default) for p in ours[: len(spec)]] == [(p.name, p.default) for p in spec]
    optional = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    assert all(p.default is not p.empty or p.kind in optional for p in ours[len(spec) :])


@every_function
@given(data=st.data())
def test_agrees_with_reference(impl, name, data):
    """On the same draws at every dtype, so that no branch is left to one of them."""
    agree(impl, name, data.draw(INPUTS[name]))


@pytest.mark.parametrize("name", sorted(CORNERS))
def test_agrees_where_draws_seldom_get(impl, name):
    for inputs in CORNERS[name]:
        agree(impl, name, inputs)


def agree(impl, name, inputs):
    """Compare a function with the reference at every dtype."""
    function, spec = getattr(impl, name), getattr(reference, name)
    if function is spec:
        pytest.skip(f"{name} is the reference's own")
    for dtype in DTYPES:
        same = cast(inputs, dtype)
        try:
            assert_as_accurate(function(**same), spec, same)
        except Exception as error:
            error.add_note(f"at {dtype}")
            raise


@every_function
@manners
@given(data=st.data())
def test_leaves_its_inputs_alone(impl, name, data):
    function = getattr(impl, name)
    inputs = data.draw(INPUTS[name])
    before = deepcopy(inputs)
    function(**inputs)
    for k, v in inputs.items():
        assert_equal(v, before[k])


@every_function
@manners
@given(data=st.data())
def test_accepts_any_memory_layout(impl, name, data):
    function = getattr(impl, name)
    inputs = data.draw(INPUTS[name])
    strided = {k: spread(v) if isinstance(v, Tensor) else v for k, v in inputs.items()}
    assert_as_accurate(function(**strided), getattr(reference, name), inputs)


def spread(tensor: Tensor) -> Tensor:
    """Return the same values, not contiguous, starting in the middle of a storage."""
    padded = torch.stack([torch.zeros_like(tensor), tensor], -1)
    return padded[..., 1]
