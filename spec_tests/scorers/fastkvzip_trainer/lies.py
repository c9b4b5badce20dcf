"""Lies about the trainer of FastKVzip's gate."""

from inspect import signature

import torch

import reference
from reference import GateWeights
from reference.scorers import fastkvzip_trainer
from spec_tests.mutants.make import mutant


@mutant(
    "FastKVzipGate",
    "projections start as Gaussians",
    killer="scorers/fastkvzip_trainer/test_laws.py::"
    "test_a_fresh_gate_is_uniform_within_the_root_of_the_width",
)
class GaussianGate(reference.FastKVzipGate):
    """Draw them again."""

    def __init__(self, hidden, *shape, **choices):
        super().__init__(hidden, *shape, **choices)
        for part in (self.query, self.key):
            torch.nn.init.normal_(part, std=hidden**-0.5)


def trained(x, change=lambda weights: weights, pace=fastkvzip_trainer._pace, anew=False):
    """Train on all tokens at once, or on some drawn anew, the weights changed before every look."""
    hidden, targets, steps = x["hidden"], x["targets"], x["steps"]
    shape = (hidden.shape[-1], targets.shape[-2], x["group"], x["dim"], x["learned"])
    gate = reference.FastKVzipGate(*shape, x["seed"], hidden.dtype, x["spread"])
    descent = torch.optim.SGD(gate.parameters(), lr=x["rate"], momentum=x["momentum"])
    generator = torch.Generator().manual_seed(x["seed"])
    for i in range(steps):
        tokens = torch.arange(hidden.shape[-2])
        if anew:
            tokens = torch.randperm(len(tokens), generator=generator)[: x["sample"]]
        descent.zero_grad()
        seen = (hidden[..., tokens, :], change(gate.weights()))
        scores = reference.fastkvzip(*seen, epsilon=x["epsilon"]).scores
        reference.fastkvzip_loss(scores, targets[..., tokens]).backward()
        descent.param_groups[0]["lr"] = x["rate"] * pace(i, steps)
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


@mutant(
    "train_fastkvzip",
    "there is no momentum",
    killer="scorers/fastkvzip_trainer/test_laws.py::"
    "test_steps_go_down_the_slope_of_the_loss_with_momentum",
)
def no_momentum(hidden, targets, **x):
    """Forget every slope but the last."""
    x.update(momentum=0.0)
    return reference.train_fastkvzip(hidden, targets, **x)


@mutant(
    "train_fastkvzip",
    "the rate never changes",
    killer="scorers/fastkvzip_trainer/test_laws.py::"
    "test_steps_go_down_the_slope_of_the_loss_with_momentum",
)
def constant_rate(hidden, targets, **x):
    """Take whole steps."""
    return trained(filled(hidden=hidden, targets=targets, **x), pace=lambda *_: 1.0)


@mutant(
    "train_fastkvzip",
    "the first steps are as large as the next",
    killer="scorers/fastkvzip_trainer/test_laws.py::test_the_first_hundredth_of_the_steps_is_slow",
)
def no_warmup(hidden, targets, **x):
    """Leave out nothing but the first step."""
    given = filled(hidden=hidden, targets=targets, **x)
    return trained(
        given,
        pace=lambda i, steps: float(i > 0) * fastkvzip_trainer._pace(max(i, steps // 4), steps),
    )


@mutant(
    "train_fastkvzip",
    "learned keys start apart",
    killer="scorers/fastkvzip_trainer/test_laws.py::"
    "test_learned_keys_stay_alike_unless_they_start_apart",
)
def always_apart(hidden, targets, **x):
    """Start them as standard Gaussians."""
    x.update(spread=1.0)
    return reference.train_fastkvzip(hidden, targets, **x)


@mutant(
    "train_fastkvzip",
    "every step draws from all tokens anew",
    killer="scorers/fastkvzip_trainer/test_laws.py::test_a_token_is_seen_again_only_after_the_others",
)
def drawn_anew(hidden, targets, **x):
    """Forget which were seen."""
    return trained(filled(hidden=hidden, targets=targets, **x), anew=True)


@mutant(
    "train_fastkvzip",
    "the seed is ignored",
    killer="scorers/fastkvzip_trainer/test_laws.py::"
    "test_without_steps_the_weights_are_those_of_a_fresh_gate",
)
def seed_ignored(hidden, targets, **x):
    """Start the same way always."""
    x.update(seed=0)
    return reference.train_fastkvzip(hidden, targets, **x)
