"""The trainer of FastKVzip's gate."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.draw import grid, signed
from spec_tests.inputs.fastkvzip import train_fastkvzip

trained = train_fastkvzip()
SMALL = dict(group=2, dim=2, learned=2)
few = settings(max_examples=10)
"""A step costs milliseconds, and a slope that is wrong is wrong anywhere."""


def gradient(impl, weights, x):
    """Return the slope of the loss at some weights."""
    leaves = type(weights)(*(part.clone().requires_grad_() for part in weights))
    scores = impl.fastkvzip(x["hidden"].double(), leaves, epsilon=1e-6).scores
    loss = impl.fastkvzip_loss(scores, x["targets"].double())
    return torch.autograd.grad(loss, tuple(leaves))


@st.composite
def lessons(draw):
    """Hidden states and scores to learn, in float64."""
    hidden, targets = draw(signed(4, 3)), draw(grid(2, 4))
    return dict(hidden=hidden.double(), targets=targets.double())


@pytest.mark.spec("HubKV-FastKVzip")
@few
@given(lessons(), st.integers(0, 5))
def test_without_steps_the_weights_are_those_of_a_fresh_gate(impl, x, seed):
    weights = impl.train_fastkvzip(**x, **SMALL, steps=0, seed=seed)
    fresh = impl.FastKVzipGate(3, 2, 2, 2, 2, seed, torch.float64).weights()
    for part, other in zip(weights, fresh, strict=True):
        assert_equal(part, other.detach())


@pytest.mark.spec("HubKV-FastKVzip")
@few
@given(lessons(), st.sampled_from([0.0, 0.5, 0.9]))
def test_steps_go_down_the_slope_of_the_loss_with_momentum(impl, x, momentum):
    choices = SMALL | dict(rate=0.25, momentum=momentum)
    start, one, two = (impl.train_fastkvzip(**x, **choices, steps=n) for n in range(3))
    first, second = gradient(impl, start, x), gradient(impl, one, x)
    for before, after, last, push, more in zip(start, one, two, first, second, strict=True):
        assert_close(after, before - 0.25 * push, 4.0)
        assert_close(last, after - 0.25 * (momentum * push + more), 16.0)


@pytest.mark.spec("HubKV-FastKVzip")
@few
@given(trained)
def test_the_same_seed_gives_the_same_weights(impl, x):
    assert_equal(impl.train_fastkvzip(**x), impl.train_fastkvzip(**x))


@pytest.mark.spec("HubKV-FastKVzip")
def test_training_finds_what_another_gate_knows(impl):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(2, 64, 6, generator=generator, dtype=torch.float64)
    teacher = impl.FastKVzipGate(6, 2, 2, 4, 4, seed=1, dtype=torch.float64)
    with torch.no_grad():
        targets = teacher(hidden)

    def loss(steps):
        weights = impl.train_fastkvzip(hidden, targets, 2, steps, dim=4, learned=4, seed=2)
        return impl.fastkvzip_loss(impl.fastkvzip(hidden, weights).scores, targets)

    least = impl.fastkvzip_loss(targets, targets)
    assert loss(60) - least < (loss(0) - least) / 4


@pytest.mark.spec("HubKV-FastKVzip")
@few
@given(lessons(), st.integers(0, 3))
def test_padding_teaches_nothing(impl, x, seed):
    choices = SMALL | dict(steps=2, seed=seed)
    valid = torch.tensor([False, False, True, True])
    masked = impl.train_fastkvzip(**x, **choices, valid=valid)
    cut = dict(hidden=x["hidden"][2:], targets=x["targets"][:, 2:])
    assert_equal(masked, impl.train_fastkvzip(**cut, **choices))


@pytest.mark.spec("HubKV-FastKVzip")
def test_the_module_is_the_function_with_its_parameters(impl):
    gate = impl.FastKVzipGate(3, 2, 2, dim=4)
    hidden = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    names = [name for name, _ in gate.named_parameters()]
    assert names == list(gate.weights()._fields)
    assert_close(gate(hidden).detach(), impl.fastkvzip(hidden, gate.weights()).scores.double())
