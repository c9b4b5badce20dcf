"""Mutants of FastKVzip's gate and its trainer."""

import torch

import reference
from reference import GateWeights
from spec_tests.mutants.make import mutant


@mutant(
    "fastkvzip",
    "the bias is added twice",
    killer="scorers/test_fastkvzip.py::test_the_bias_enters_once",
)
def bias_twice(hidden, weights, sinks=4, recent=None, epsilon=1e-6, valid=None):
    """Add it to the logit of the gate as well."""
    twice = weights._replace(bias=2 * weights.bias)
    return reference.fastkvzip(hidden, twice, sinks, recent, epsilon, valid)


@mutant(
    "fastkvzip",
    "the norm has no epsilon",
    killer="scorers/test_fastkvzip.py::test_scores_agree_with_scalar_loops",
)
def no_epsilon(hidden, weights, sinks=4, recent=None, epsilon=1e-6, valid=None):
    """Divide by the root of the mean square alone."""
    return reference.fastkvzip(hidden, weights, sinks, recent, 1e-30, valid)


@mutant(
    "fastkvzip",
    "the token competes with the mean of the learned keys",
    killer="scorers/test_fastkvzip.py::test_learned_keys_compete_with_the_token",
)
def mean_rival(hidden, weights, sinks=4, recent=None, epsilon=1e-6, valid=None):
    """Divide the sum by the number of learned keys."""
    count = torch.tensor(float(weights.learned.shape[1]))
    easier = weights._replace(bias=weights.bias + count.log().to(weights.bias.dtype))
    return reference.fastkvzip(hidden, easier, sinks, recent, epsilon, valid)


@mutant(
    "fastkvzip_loss",
    "padding is part of the mean",
    killer="test_vectors.py::test_vector[fastkvzip-cross-entropy-of-real-tokens]",
)
def padding_judged(scores, targets, valid=None):
    """Forget the mask."""
    return reference.fastkvzip_loss(scores, targets)


@mutant(
    "fastkvzip_loss",
    "the error is squared",
    killer="scorers/test_fastkvzip.py::test_the_loss_agrees_with_scalar_loops",
)
def squared_error(scores, targets, valid=None):
    """Take the mean square."""
    squares = (scores - targets).square()
    return squares.mean() if valid is None else squares.movedim(-2, 0)[:, valid].mean()


def trained(hidden, targets, group, steps, rate, momentum, dim, learned, seed, epsilon, change):
    """Train on every token, the weights changed before every look at the loss."""
    width, kv_heads = hidden.shape[-1], targets.shape[-2]
    gate = reference.FastKVzipGate(width, kv_heads, group, dim, learned, seed, hidden.dtype)
    descent = torch.optim.SGD(gate.parameters(), lr=rate, momentum=momentum)
    for _ in range(steps):
        descent.zero_grad()
        scores = reference.fastkvzip(hidden, change(gate.weights()), epsilon=epsilon).scores
        reference.fastkvzip_loss(scores, targets).backward()
        descent.step()
    return GateWeights(*(tensor.detach() for tensor in gate.weights()))


@mutant(
    "train_fastkvzip",
    "while training, the bias is added twice",
    killer="scorers/test_fastkvzip_trainer.py::"
    "test_steps_go_down_the_slope_of_the_loss_with_momentum",
)
def bias_twice_in_training(
    hidden, targets, group, steps=100, rate=0.2, momentum=0.9, sample=None, dim=16, learned=16,
    seed=0, epsilon=1e-6, valid=None,
):  # fmt: skip
    """Add it before and after the logit is divided."""
    rest = (group, steps, rate, momentum, dim, learned, seed, epsilon)
    return trained(hidden, targets, *rest, lambda w: w._replace(bias=2 * w.bias))


@mutant(
    "train_fastkvzip",
    "there is no momentum",
    killer="scorers/test_fastkvzip_trainer.py::"
    "test_steps_go_down_the_slope_of_the_loss_with_momentum",
)
def no_momentum(
    hidden, targets, group, steps=100, rate=0.2, momentum=0.9, sample=None, dim=16, learned=16,
    seed=0, epsilon=1e-6, valid=None,
):  # fmt: skip
    """Forget every slope but the last."""
    rest = (group, steps, rate, 0.0, dim, learned, seed, epsilon)
    return trained(hidden, targets, *rest, lambda weights: weights)


@mutant(
    "train_fastkvzip",
    "the seed is ignored",
    killer="scorers/test_fastkvzip_trainer.py::"
    "test_without_steps_the_weights_are_those_of_a_fresh_gate",
)
def seed_ignored(
    hidden, targets, group, steps=100, rate=0.2, momentum=0.9, sample=None, dim=16, learned=16,
    seed=0, epsilon=1e-6, valid=None,
):  # fmt: skip
    """Start the same way always."""
    rest = (rate, momentum, sample, dim, learned, 0, epsilon, valid)
    return reference.train_fastkvzip(hidden, targets, group, steps, *rest)
