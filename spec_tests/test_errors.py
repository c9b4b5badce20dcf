"""Bad input gets a clear error: the argument, its value, the admissible range; nothing is lost."""

import pytest
from torch import Tensor

import reference
from spec_tests.accuracy import assert_equal
from spec_tests.inputs import INPUTS, REFUSALS

CASES = [
    pytest.param(name, good, refusal, id=f"{name}-{refusal.argument}-{number}")
    for name, (good, refusals) in REFUSALS.items()
    for number, refusal in enumerate(refusals)
]


def test_every_function_has_refusals():
    assert sorted(REFUSALS) == sorted(INPUTS)


@pytest.mark.parametrize("name", sorted(REFUSALS))
def test_the_good_input_is_accepted(impl, name):
    getattr(impl, name)(**REFUSALS[name][0])


@pytest.mark.door
@pytest.mark.parametrize(("name", "good", "refusal"), CASES)
def test_refuses(impl, name, good, refusal):
    function = getattr(impl, name)
    value = good[refusal.argument]
    bad = refusal.change(value) if callable(refusal.change) else refusal.change
    inputs = {k: v.clone() if isinstance(v, Tensor) else v for k, v in good.items()}
    with pytest.raises(refusal.error) as caught:
        function(**{**inputs, refusal.argument: bad})
    for k, v in good.items():
        assert_equal(inputs[k], v)
    if impl.ours:
        message = str(caught.value)
        assert refusal.argument in message
        assert refusal.says in message
        assert "got" in message
        several = bad if isinstance(bad, tuple | list) else ()
        if several and not hasattr(bad, "_fields"):
            tensors = any(isinstance(part, Tensor) for part in several)
            assert tensors or any(str(part) in message for part in several), "the part at fault"
        elif not any(isinstance(part, Tensor) for part in (bad, *several)):
            assert str(bad) in message


def test_every_argument_that_can_be_wrong_is_tried():
    """Each parameter of each function has a refusal, or cannot be wrong (a flag)."""
    for name, (good, refusals) in REFUSALS.items():
        tried = {refusal.argument for refusal in refusals}
        flags = {k for k, v in good.items() if isinstance(v, bool)}
        parameters = set(__import__("inspect").signature(getattr(reference, name)).parameters)
        assert parameters <= tried | flags, (name, parameters - tried - flags)
