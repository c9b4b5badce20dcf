"""The trainer of FastKVzip's gate."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_tests.accuracy import assert_at_most, assert_close
from spec_tests.strategies import grid, signed_sixteenths

pytestmark = pytest.mark.spec("HubKV-FastKVzip")

SMALL = dict(group=2, dim=2, learned=2)
few = settings(max_examples=10)
"""A step takes milliseconds, and a wrong gradient is wrong on any input."""


def gradient(impl, weights, x):
    """Return the gradient of the loss at given weights."""
    leaves = type(weights)(*(part.clone().requires_grad_() for part in weights))
    scores = impl.fastkvzip(x["hidden"].double(), leaves, epsilon=1e-6).scores
    loss = impl.fastkvzip_loss(scores, x["targets"].double())
    return torch.autograd.grad(loss, tuple(leaves))


@st.composite
def lessons(draw):
    """Hidden states and scores to learn, in float64."""
    hidden, targets = draw(signed_sixteenths(4, 3)), draw(grid(2, 4))
    return dict(hidden=hidden.double(), targets=targets.double())


def pace(i, steps):
    """Return the factor of the learning rate in step `i`: a linear warm-up, then halved twice."""
    if i < steps / 100:
        return 0.01 * i
    return 1.0 if i < steps / 2 else 0.5 if i < 3 * steps / 4 else 0.25


def stepped(weights, slopes, rate, momentum):
    """Return the weights after one step for each of `slopes`, functions that return gradients."""
    speed = tuple(torch.zeros_like(part) for part in weights)
    for i, slope in enumerate(slopes):
        speed = tuple(momentum * v + g for v, g in zip(speed, slope(weights), strict=True))
        scale = rate * pace(i, len(slopes))
        moved = (part - scale * v for part, v in zip(weights, speed, strict=True))
        weights = type(weights)(*moved)
    return weights


@few
@given(lessons(), st.integers(0, 5), st.sampled_from([0.0, 0.5]))
def test_without_steps_the_weights_are_those_of_a_fresh_gate(impl, x, seed, spread):
    weights = impl.train_fastkvzip(**x, **SMALL, steps=0, seed=seed, spread=spread)
    fresh = impl.FastKVzipGate(3, 2, 2, 2, 2, seed, torch.float64, spread).weights()
    for part, other in zip(weights, fresh, strict=True):
        assert_close(part, other.detach())


@pytest.mark.parametrize("hidden", [4, 64])
def test_a_fresh_gate_is_uniform_within_the_root_of_the_width(impl, hidden):
    weights = impl.FastKVzipGate(hidden, 8, 4, dim=16, seed=1).weights()
    bound = hidden**-0.5
    for part in (weights.query, weights.query_bias, weights.key):
        assert 0.9 * bound < part.abs().max() <= bound
        assert abs(part.std() / bound - 3**-0.5) < 0.1
    for part, value in zip(weights[2:], (1.0, None, 1.0, 0.0, 0.0), strict=True):
        assert value is None or (part == value).all()


@few
@given(lessons(), st.sampled_from([0.0, 0.5, 0.9]), st.sampled_from([8, 1, 2, 5]))
def test_steps_go_down_the_slope_of_the_loss_with_momentum(impl, x, momentum, steps):
    choices = SMALL | dict(rate=0.25, momentum=momentum)
    start = impl.train_fastkvzip(**x, **choices, steps=0)
    slopes = [lambda weights: gradient(impl, weights, x)] * steps
    expected = stepped(start, slopes, 0.25, momentum)
    for part, other in zip(
        impl.train_fastkvzip(**x, **choices, steps=steps), expected, strict=True
    ):
        assert_close(part, other, 64.0)


def test_the_first_hundredth_of_the_steps_is_slow(impl):
    """In 101 steps the first has a learning rate of 0, and the second a hundredth of it."""
    hidden = torch.tensor([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5]], dtype=torch.float64)
    x = dict(hidden=hidden, targets=torch.tensor([[0.0, 1.0]], dtype=torch.float64))
    choices = dict(group=1, dim=1, learned=1, rate=2.0**-8, momentum=0.0)
    start = impl.train_fastkvzip(**x, **choices, steps=0)
    slopes = [lambda weights: gradient(impl, weights, x)] * 101
    expected = stepped(start, slopes, 2.0**-8, 0.0)
    for part, other in zip(impl.train_fastkvzip(**x, **choices, steps=101), expected, strict=True):
        assert_close(part, other, 64.0)


@pytest.mark.parametrize("seed", range(4))
def test_a_token_is_seen_again_only_after_the_others(impl, seed):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(2, 3, generator=generator, dtype=torch.float64)
    targets = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    choices = dict(group=1, dim=2, learned=1, rate=0.25, momentum=0.5, seed=seed)
    start = impl.train_fastkvzip(hidden, targets, **choices, steps=0)
    found = impl.train_fastkvzip(hidden, targets, **choices, steps=6, sample=1)

    def alone(token):
        """Return the gradient of one token, as a function of the weights."""
        x = dict(hidden=hidden[token, None], targets=targets[:, token, None])
        return lambda weights: gradient(impl, weights, x)

    apart = []
    for first in product(range(2), repeat=3):
        slopes = [alone(token) for earlier in first for token in (earlier, 1 - earlier)]
        expected = stepped(start, slopes, 0.25, 0.5)
        apart.append(max((a - b).abs().max() for a, b in zip(found, expected, strict=True)))
    assert_at_most(min(apart), torch.tensor(2.0**-40))


@few
@given(lessons(), st.integers(0, 5))
def test_learned_keys_stay_alike_unless_they_start_apart(impl, x, seed):
    choices = SMALL | dict(steps=4, seed=seed)
    alike = impl.train_fastkvzip(**x, **choices).learned
    assert_close(alike[:, 0], alike[:, 1])
    apart = impl.train_fastkvzip(**x, **choices, spread=0.5).learned
    assert (apart[:, 0] - apart[:, 1]).abs().amax(-1).min() > 2.0**-20


def test_the_module_is_the_function_with_its_parameters(impl):
    gate = impl.FastKVzipGate(3, 2, 2, dim=4)
    hidden = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    names = [name for name, _ in gate.named_parameters()]
    assert names == list(gate.weights()._fields)
    assert_close(gate(hidden).detach(), impl.fastkvzip(hidden, gate.weights()).scores.double())
