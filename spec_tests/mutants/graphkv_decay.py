"""Mutants of GraphKV: signals along the graph."""

import torch

import reference
from spec_tests.mutants.graphkv import DECAY, VECTOR
from spec_tests.mutants.make import mutant


@mutant(
    "decay",
    "Algorithm 2 overwrites where Equation 5 multiplies",
    killer=f"{DECAY}product_is_equation_5_and_sequential_is_algorithm_2",
)
def overwriting_product(scores, weights, neighbours, rounds=1, strength=1.0, rule="product"):
    """Let the last source win under both names."""
    rule = "sequential" if rule == "product" else rule
    return reference.decay(scores, weights, neighbours, rounds, strength, rule)


@mutant(
    "decay",
    "Algorithm 2 in place, on one array for all rounds",
    killer=f"{DECAY}only_the_last_source_that_reaches_a_token_counts",
)
def accumulating_in_place(scores, weights, neighbours, rounds=1, strength=1.0, rule="product"):
    """Read what this round already wrote."""
    rule = "product" if rule == "sequential" else rule
    return reference.decay(scores, weights, neighbours, rounds, strength, rule)


@mutant("decay", "the losses of Figure 3 multiply", killer=f"{VECTOR}figure-as-drawn]")
def no_sum(scores, weights, neighbours, rounds=1, strength=1.0, rule="product"):
    """Know one rule."""
    return reference.decay(scores, weights, neighbours, rounds, strength)


@mutant("decay", "stops at 0", killer=f"{VECTOR}losses-beyond-the-score]")
def bounded_losses(scores, weights, neighbours, rounds=1, strength=1.0, rule="product"):
    """Bound the result from below."""
    return reference.decay(scores, weights, neighbours, rounds, strength, rule).clamp(min=0)


@mutant("decay", "one round more", killer=f"{DECAY}no_round_is_the_identity_for_every_signal")
def one_round_more(scores, weights, neighbours, rounds=1, strength=1.0, rule="product"):
    """Count rounds from 0 to T."""
    return reference.decay(scores, weights, neighbours, rounds + 1, strength, rule)


@mutant("decay", "one round whatever is asked", killer=f"{DECAY}rounds_are_a_power_of_the_factor")
def one_round(scores, weights, neighbours, rounds=1, strength=1.0, rule="product"):
    """Forget the loop."""
    return reference.decay(scores, weights, neighbours, min(rounds, 1), strength, rule)


@mutant("decay", "no strength", killer=f"{DECAY}one_source_takes_its_edge_off_the_score")
def strength_forgotten(scores, weights, neighbours, rounds=1, strength=1.0, rule="product"):
    """Leave the coefficient out, as Equation 4 is printed."""
    return reference.decay(scores, weights, neighbours, rounds, 1.0, rule)


@mutant(
    "decay",
    "every edge counts, not only those to neighbours",
    killer=f"{DECAY}a_token_that_no_source_reaches_is_untouched",
)
def everybody_reached(scores, weights, neighbours, rounds=1, strength=1.0, rule="product"):
    """Forget the mask."""
    everyone = torch.ones_like(neighbours)
    return reference.decay(scores, weights, everyone, rounds, strength, rule)


@mutant(
    "decay",
    "clamped edges",
    killer=f"{VECTOR}opposite-keys-amplify]",
)
def clamped_unasked(scores, weights, neighbours, rounds=1, strength=1.0, rule="product"):
    """Take the positive part of every edge."""
    return reference.decay(scores, weights.clamp(min=0), neighbours, rounds, strength, rule)


@mutant(
    "decay",
    "the first source counts more",
    killer=f"{DECAY}the_order_of_the_sources_does_not_matter",
)
def order_matters(scores, weights, neighbours, rounds=1, strength=1.0, rule="product"):
    """Let every source but the first decay at half strength."""
    later = torch.arange(weights.shape[-2])[:, None] > 0
    halved = torch.where(later, weights / 2, weights)
    return reference.decay(scores, halved, neighbours, rounds, strength, rule)


@mutant("decay", "rounded after every round", killer=f"{DECAY}half_precision_is_rounded_once")
def rounded_every_time(scores, weights, neighbours, rounds=1, strength=1.0, rule="product"):
    """Go one round at a time, in the dtype of the scores."""
    for _ in range(rounds):
        scores = reference.decay(scores, weights, neighbours, 1, strength, rule)
    return scores


@mutant(
    "decay",
    "raises what it should lower",
    killer=f"{DECAY}product_and_sequential_never_raise_a_score",
)
def raising(scores, weights, neighbours, rounds=1, strength=1.0, rule="product"):
    """Turn the sign of the edges."""
    return reference.decay(scores, -weights, neighbours, rounds, strength, rule)


@mutant(
    "decay",
    "a duplicate keeps a little",
    killer=f"{DECAY}a_duplicate_key_decays_to_exactly_0",
)
def never_quite_0(scores, weights, neighbours, rounds=1, strength=1.0, rule="product"):
    """Bound the edges away from 1."""
    weights = weights.clamp(max=1 - 1e-6)
    return reference.decay(scores, weights, neighbours, rounds, strength, rule)


@mutant(
    "enhance",
    "lowers what it should raise",
    killer=f"{DECAY}enhanced_is_at_least_the_score_which_is_at_least_the_decayed",
)
def enhancing_downwards(scores, weights, neighbours, rounds=1, strength=1.0):
    """Decay."""
    return reference.decay(scores, weights, neighbours, rounds, strength)


@mutant(
    "enhance", "gains add", killer=f"{DECAY}enhancing_is_decaying_along_edges_of_the_other_sign"
)
def added_gains(scores, weights, neighbours, rounds=1, strength=1.0):
    """Use the rule of Figure 3."""
    return reference.decay(scores, -weights, neighbours, rounds, strength, "sum")


@mutant("banish", "evicts at T = 0", killer=f"{DECAY}no_round_is_the_identity_for_every_signal")
def banished_at_once(scores, neighbours, rounds=1):
    """Forget the rounds."""
    return reference.banish(scores, neighbours)


@mutant(
    "banish",
    "a large negative number for minus infinity",
    killer=f"{DECAY}the_evicted_signal_is_minus_infinity_on_exactly_the_neighbours",
)
def finite_banishment(scores, neighbours, rounds=1):
    """Write the lowest finite number."""
    return reference.banish(scores, neighbours, rounds).nan_to_num()
