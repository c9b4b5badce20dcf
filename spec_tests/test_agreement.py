"""Compare every function with the reference: result, signature and calling convention."""

import inspect
from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import cache, wraps
from itertools import zip_longest
from typing import Any, get_type_hints

import pytest
import torch
from beartype import beartype
from beartype.door import is_bearable
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import jaxtyped
from torch import Tensor

import reference
from spec_tests.accuracy import are_equal, assert_as_accurate, assert_equal, cast
from spec_tests.inputs import CORNERS, DRAWN, EXTENDED, GOOD, INPUTS, depends_on_random_stream
from spec_tests.long_axes.inputs import BY_AGREEMENT, long_inputs
from spec_tests.program import NotSupported
from spec_tests.record_conversion import ADDED, RECORDS, Own, from_module_records
from spec_tests.report.calls import mapped, tensors


def takes_floats(name: str) -> bool:
    """Whether a function takes floating-point tensors."""
    return any(tensor.is_floating_point() for tensor in tensors(GOOD[name]))


every_function = pytest.mark.parametrize("name", sorted(INPUTS))
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
OF_MEMORY = {"stored_bytes"}
"""Functions whose result depends on the memory layout of the inputs."""


@every_function
def test_signature(impl, name):
    """Names, order and defaults are equal; an implementation may add optional parameters."""
    spec = list(inspect.signature(getattr(reference, name)).parameters.values())
    ours = list(inspect.signature(getattr(impl, name)).parameters.values())
    free = set() if impl.asked else ADDED.get(name, {}).keys() - {p.name for p in ours}
    spec = [parameter for parameter in spec if parameter.name not in free]
    assert_same_parameters(ours[: len(spec)], spec, impl.own)
    optional = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    for extra in ours[len(spec) :]:
        if extra.default is extra.empty and extra.kind not in optional:
            pytest.fail(f"{extra.name} must have a default, since the specification lacks it")


def assert_same_parameters(
    ours: Iterable[inspect.Parameter], spec: Iterable[inspect.Parameter], own: Own
) -> None:
    """Check names, order and defaults; a record of the module counts as the specification's."""
    records = {kind: record for record, kind in own.items()}
    for theirs, right in zip_longest(ours, spec):
        names = [p.name if p else "no other" for p in (right, theirs)]
        if theirs is None or right is None or theirs.name != right.name:
            pytest.fail(f"the next parameter must be {names[0]}, got {names[1]}")
        default = from_module_records(theirs.default, records.get(type(theirs.default)), own)
        if default != right.default:
            defaults = [
                "none" if p.default is p.empty else repr(p.default) for p in (right, theirs)
            ]
            pytest.fail(f"{right.name} must have the default {defaults[0]}, got {defaults[1]}")


@pytest.mark.own_body
@pytest.mark.parametrize("name", [record.__name__ for record in RECORDS])
def test_a_record_has_the_fields_and_defaults_of_the_specification(impl, name):
    spec = getattr(reference, name)
    ours, theirs = (inspect.signature(kind).parameters for kind in (impl.own[spec], spec))
    free = set() if impl.asked else ADDED.get(name, {}).keys() - ours
    needed = [parameter for field, parameter in theirs.items() if field not in free]
    assert_same_parameters(ours.values(), needed, impl.own)


@pytest.mark.own_body
@every_function
@settings(max_examples=30)  # each at four dtypes
@given(data=st.data())
def test_agrees_with_reference(impl, name, data):
    """Each example runs at every dtype, so that each dtype reaches the same branches."""
    assert_agrees(impl, name, data.draw(INPUTS[name]))


@pytest.mark.own_body
@pytest.mark.parametrize("name", sorted(CORNERS))
def test_agrees_where_draws_seldom_get(impl, name):
    for inputs in CORNERS[name]:
        assert_agrees(impl, name, inputs)


@pytest.mark.own_body
@pytest.mark.extension
@pytest.mark.parametrize("name", sorted(EXTENDED))
@settings(max_examples=30)
@given(data=st.data())
def test_agrees_with_settings_of_our_extensions(impl, name, data):
    assert_agrees(impl, name, data.draw(EXTENDED[name]))


@pytest.mark.own_body
@pytest.mark.parametrize("name", sorted(BY_AGREEMENT))
def test_agrees_on_long_axes(impl, name):
    """Calls that are too large for a vector, or depend on a random stream."""
    for inputs in long_inputs(name):
        assert_agrees(impl, name, inputs, DTYPES[1:2])


@pytest.mark.parametrize("name", sorted(DRAWN))
@settings(max_examples=5)
@given(data=st.data())
def test_the_same_seed_draws_the_same(impl, name, data):
    inputs = data.draw(INPUTS[name])
    function = getattr(impl, name)
    assert_equal(function(**deepcopy(inputs)), function(**inputs))


def assert_agrees(impl, name, inputs, dtypes=DTYPES):
    """Check that a function agrees with the reference at those of the dtypes that it supports."""
    unsupported = []
    function, spec = getattr(impl, name), getattr(reference, name)
    wide = cast(inputs, torch.float64)
    exact = wide, spec(**wide)
    supported = [x for x in dtypes if x in getattr(impl.module, "dtypes", dtypes)]
    for dtype in supported:
        same = cast(inputs, dtype)
        try:
            result = function(**same)
            if impl.ours or not depends_on_random_stream(name, same):
                assert_as_accurate(result, spec, same, exact)
        except NotSupported as error:
            unsupported.append(error)
        except Exception as error:
            error.add_note(f"at {dtype}")
            raise
    if unsupported and len(unsupported) == len(supported):
        raise unsupported[0]


@every_function
@settings(max_examples=20)  # shapes, dtypes and layouts, more than values
@given(data=st.data())
def test_calling_convention(impl, name, data):
    """Types match the annotations, inputs stay unchanged, and the memory layout does not matter.

    Agreement tests check the values. Here a call on strided inputs must give the result of the call
    on contiguous ones, or another right result: sums may have another order.
    """
    function, spec = getattr(impl, name), getattr(reference, name)
    inputs = data.draw(INPUTS[name])
    strided = inputs if name in OF_MEMORY else mapped(spread_in_memory, inputs)
    before = deepcopy(inputs)
    contiguous = with_type_checks(spec, function)(**inputs)
    result = function(**strided)
    determined = impl.ours or not depends_on_random_stream(name, before)
    if determined and not are_equal(result, contiguous):
        assert_as_accurate(result, spec, before)
    for k, v in before.items():
        assert_equal(inputs[k], v)
        assert_equal(strided[k], v)


@cache
def with_type_checks(spec: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` wrapped to check arguments and result against the annotations of `spec`.

    An axis name stands for one length in all arguments and the result, and in all fields of a
    returned named tuple.
    """

    @jaxtyped(typechecker=beartype)
    @wraps(spec)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if hasattr(result, "_fields"):
            with jaxtyped("context"):
                for field, annotation in get_type_hints(type(result)).items():
                    assert is_bearable(getattr(result, field), annotation), field
        return result

    return call


def spread_in_memory(tensor: Tensor) -> Tensor:
    """Return an equal tensor with gaps in memory, an offset, and the first axis innermost."""
    moved = tensor.movedim(0, -1) if tensor.ndim else tensor
    apart = torch.stack([torch.zeros_like(moved), moved], -1)[..., 1]
    return apart.movedim(-1, 0) if tensor.ndim else apart
