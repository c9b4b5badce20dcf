"""A bad input raises an error that names argument, value and range; inputs stay unchanged."""

import pytest
from torch import Tensor
from torch.utils._pytree import tree_leaves

from spec_tests.accuracy import assert_equal
from spec_tests.inputs import REFUSALS
from spec_tests.record_conversion import ADDED, is_extended

CASES = [
    pytest.param(
        name,
        argument,
        id=f"{name}-{argument}",
        marks=[pytest.mark.extension] * (argument in ADDED.get(name, {})),
    )
    for name, (_, refusals) in REFUSALS.items()
    for argument in dict.fromkeys(refusal.argument for refusal in refusals)
]


@pytest.mark.parametrize("name", sorted(REFUSALS))
def test_the_good_input_is_accepted(impl, name):
    getattr(impl, name)(**REFUSALS[name][0])


@pytest.mark.argument_checks
@pytest.mark.parametrize(("name", "argument"), CASES)
def test_refuses(impl, name, argument):
    good, refusals = REFUSALS[name]
    for refusal in refusals:
        if refusal.argument == argument and (impl.asked or not is_extended(refusal.change)):
            value = good.get(argument)
            bad = refusal.change(value) if callable(refusal.change) else refusal.change
            inputs = {k: v.clone() if isinstance(v, Tensor) else v for k, v in good.items()}
            assert_refused(impl, name, {**inputs, argument: bad}, refusal)
            for k, v in good.items():
                assert_equal(inputs[k], v)


def assert_refused(impl, name, inputs, refusal):
    """Check that one bad call raises; for our own modules also the type and the message.

    Third-party modules may raise either `TypeError` or `ValueError`.
    """
    bad = inputs[refusal.argument]
    kinds = (refusal.error,) if impl.ours else (TypeError, ValueError)
    try:
        getattr(impl, name)(**inputs)
    except kinds as error:
        message = str(error)
    except Exception as error:
        error.add_note(f"where {refusal.argument} is {bad!r}")
        raise
    else:
        pytest.fail(f"{refusal.argument} may not be {bad!r}")
    if impl.ours:
        assert refusal.argument in message
        assert refusal.says in message
        assert "got" in message
        several = bad if isinstance(bad, tuple | list) else ()
        if several and not hasattr(bad, "_fields"):
            tensors = any(isinstance(part, Tensor) for part in several)
            assert tensors or any(str(part) in message for part in several), "the part at fault"
        elif not any(isinstance(part, Tensor) for part in tree_leaves(bad)):
            assert str(bad) in message
