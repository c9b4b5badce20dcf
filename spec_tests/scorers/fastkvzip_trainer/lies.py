"""Lies about the trainer of FastKVzip's gate."""

from inspect import signature

import torch

import reference
from reference import GateWeights
from reference.scorers import fastkvzip_trainer
from spec_tests.mutants.make import lies, mutant

lie = lies("scorers/fastkvzip_trainer")

lie(
    "GaussianGate",
    "projections start as Gaussians",
    "torch.rand(shape",
    "torch.randn(shape",
    "test_a_fresh_gate_is_uniform_within_the_root_of_the_width",
)
lie(
    "no_momentum",
    "there is no momentum",
    "momentum=momentum)",
    "momentum=0.0)",
    "test_steps_go_down_the_slope_of_the_loss_with_momentum",
)
lie(
    "constant_rate",
    "the rate never changes",
    "rate * _pace(i, steps)",
    "rate",
    "test_steps_go_down_the_slope_of_the_loss_with_momentum",
)
lie(
    "no_warmup",
    "the first steps are as large as the next",
    "return i / 100",
    "return float(i > 0)",
    "test_the_first_hundredth_of_the_steps_is_slow",
)
lie(
    "drawn_anew",
    "every step draws from all tokens anew",
    "if part == 0:",
    "if i >= 0:",
    "test_a_token_is_seen_again_only_after_the_others",
)
lie(
    "seed_ignored",
    "the seed is ignored",
    "learned, seed, exact",
    "learned, 0, exact",
    "test_without_steps_the_weights_are_those_of_a_fresh_gate",
)
lie(
    "always_apart",
    "learned keys start apart",
    "seed, exact, spread",
    "seed, exact, 1.0",
    "test_learned_keys_stay_alike_unless_they_start_apart",
)


def trained(x, change):
    """Train on all tokens at once, the weights changed before every look."""
    hidden, targets, steps = x["hidden"], x["targets"], x["steps"]
    shape = (hidden.shape[-1], targets.shape[-2], x["group"], x["dim"], x["learned"])
    gate = reference.FastKVzipGate(*shape, x["seed"], hidden.dtype, x["spread"])
    descent = torch.optim.SGD(gate.parameters(), lr=x["rate"], momentum=x["momentum"])
    for i in range(steps):
        descent.zero_grad()
        scores = reference.fastkvzip(hidden, change(gate.weights()), epsilon=x["epsilon"]).scores
        reference.fastkvzip_loss(scores, targets).backward()
        descent.param_groups[0]["lr"] = x["rate"] * fastkvzip_trainer._pace(i, steps)
        descent.step()
    return GateWeights(*(tensor.detach() for tensor in gate.weights()))


def filled(**x):
    """Return the arguments of `train_fastkvzip` with its defaults."""
    bound = signature(reference.train_fastkvzip).bind(**x)
    bound.apply_defaults()
    return bound.arguments


@mutant(
    "train_fastkvzip",
    "while training, the bias is added twice",
    killer="scorers/fastkvzip_trainer/test_laws.py::"
    "test_steps_go_down_the_slope_of_the_loss_with_momentum",
)
def bias_twice_in_training(hidden, targets, **x):
    """Add it before and after the logit is divided."""
    given = filled(hidden=hidden, targets=targets, **x)
    return trained(given, lambda weights: weights._replace(bias=2 * weights.bias))
