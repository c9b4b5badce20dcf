"""Lies about FastKVzip's gate and its trainer."""

import torch

import reference
from spec_tests.mutants.make import mutant


@mutant(
    "fastkvzip",
    "the bias is added twice",
    killer="scorers/fastkvzip/test_laws.py::test_the_bias_enters_once",
)
def bias_twice(hidden, weights, sinks=4, recent=None, epsilon=1e-6, valid=None):
    """Add it to the logit of the gate as well."""
    twice = weights._replace(bias=2 * weights.bias)
    return reference.fastkvzip(hidden, twice, sinks, recent, epsilon, valid)


@mutant(
    "fastkvzip",
    "the norm has no epsilon",
    killer="scorers/fastkvzip/test_laws.py::test_scores_agree_with_scalar_loops",
)
def no_epsilon(hidden, weights, sinks=4, recent=None, epsilon=1e-6, valid=None):
    """Divide by the root of the mean square alone."""
    return reference.fastkvzip(hidden, weights, sinks, recent, 1e-30, valid)


@mutant(
    "fastkvzip",
    "the token competes with the mean of the learned keys",
    killer="scorers/fastkvzip/test_laws.py::test_learned_keys_compete_with_the_token",
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
    killer="scorers/fastkvzip/test_laws.py::test_the_loss_agrees_with_scalar_loops",
)
def squared_error(scores, targets, valid=None):
    """Take the mean square."""
    squares = (scores - targets).square()
    return squares.mean() if valid is None else squares.movedim(-2, 0)[:, valid].mean()


@mutant(
    "fastkvzip_loss",
    "the loss is averaged over heads",
    killer="scorers/fastkvzip/test_laws.py::test_the_loss_agrees_with_scalar_loops",
)
def loss_averaged_over_heads(scores, targets, valid=None):
    """Divide by the number of heads."""
    return reference.fastkvzip_loss(scores, targets, valid) / scores.shape[-2]
