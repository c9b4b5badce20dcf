"""Mutants of HubKV's head statistics, gate and protected mask."""

import torch

import reference
from spec_tests.mutants.make import mutant

CALIBRATION, GATE = "hubkv/test_calibration.py::", "hubkv/test_gate.py::"
PROTECTED, VECTOR = "hubkv/test_refine_protected.py::", "test_vectors.py::test_vector"


@mutant(
    "selectivity",
    "the sample's deviation, not the population's",
    killer=CALIBRATION + "test_selectivity_is_deviation_over_mean",
)
def sample_deviation(scores, protected=None, epsilon=1e-6):
    """Divide by one less."""
    variation = reference.selectivity(scores, protected, epsilon)
    count = torch.ones_like(scores) if protected is None else ~protected
    count = count.sum(-1).to(variation.dtype)
    return variation * (count / (count - 1).clamp(min=1)).sqrt()


@mutant(
    "selectivity",
    "protected tokens count",
    killer=CALIBRATION + "test_selectivity_is_that_of_the_content_alone",
)
def statistics_of_everything(scores, protected=None, epsilon=1e-6):
    """Forget the mask."""
    return reference.selectivity(scores, None, epsilon)


@mutant(
    "selectivity",
    "equal scores deviate by a rounding error",
    killer=CALIBRATION + "test_equal_scores_have_a_selectivity_of_exactly_zero",
)
def noisy_constant(scores, protected=None, epsilon=1e-6):
    """Subtract the squared mean from the mean square."""
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    deviation = (wide.square().mean(-1) - wide.mean(-1).square()).abs().sqrt()
    return deviation / (wide.mean(-1) + epsilon + 1e-30)


@mutant(
    "head_weights",
    "one mean over all layers",
    killer=CALIBRATION + "test_layers_are_averaged_apart",
)
def one_mean_for_all(selectivity, tau=0.5, minimum=0.8, maximum=1.2):
    """Take the heads of all layers for one layer's."""
    weights = reference.head_weights(selectivity.flatten(), tau, minimum, maximum)
    return weights.reshape(selectivity.shape)


@mutant(
    "head_weights",
    "clipped before the power",
    killer=VECTOR + "[hubkv-weights-are-clipped-last]",
)
def clipped_first(selectivity, tau=0.5, minimum=0.8, maximum=1.2):
    """Let the power move what was clipped."""
    return reference.head_weights(selectivity, 1.0, minimum, maximum) ** tau


@mutant(
    "head_weights",
    "nothing is clipped",
    killer=CALIBRATION + "test_weights_stay_within_the_bounds",
)
def unclipped(selectivity, tau=0.5, minimum=0.8, maximum=1.2):
    """Forget the bounds."""
    return reference.head_weights(selectivity, tau, 2.0**-126, torch.inf)


@mutant(
    "head_weights",
    "0 / 0 where no head is selective",
    killer=CALIBRATION + "test_a_layer_without_any_selectivity_weighs_one",
)
def unguarded_quotient(selectivity, tau=0.5, minimum=0.8, maximum=1.2):
    """Divide by the mean whatever it is."""
    mean = selectivity.mean(-1, keepdim=True)
    return ((selectivity / mean) ** tau).clamp(minimum, maximum)


@mutant(
    "calibrate",
    "the weights are rounded to the scores' precision first",
    killer=CALIBRATION + "test_weights_are_not_rounded_before_they_multiply",
)
def rounded_weights(scores, weights):
    """Cast, then multiply."""
    return reference.calibrate(scores, weights.to(scores.dtype))


@mutant(
    "gate",
    "the ratio itself mixes, not its power",
    killer=GATE + "test_the_gate_mixes_by_the_ratios_power",
)
def linear_gate(scores, corrected, ratio, power=2.0):
    """Forget the exponent."""
    return reference.gate(scores, corrected, ratio, 1.0)


@mutant(
    "gate", "mixed the wrong way round", killer=GATE + "test_nothing_is_corrected_at_ratio_zero"
)
def swapped_gate(scores, corrected, ratio, power=2.0):
    """Give the raw scores the correction's share."""
    return reference.gate(corrected, scores, ratio, power).to(scores.dtype)


@mutant(
    "gate",
    "the correction is added, not mixed in",
    killer=GATE + "test_refinement_perturbs_by_a_bounded_factor",
)
def additive_gate(scores, corrected, ratio, power=2.0):
    """Keep the raw scores whole."""
    return reference.gate(scores, scores + corrected, ratio, power)


@mutant(
    "gate",
    "a strong correction turns the ranking round",
    killer=GATE + "test_a_large_enough_lead_survives_refinement",
)
def overdone_gate(scores, corrected, ratio, power=2.0):
    """Subtract what the correction takes three times."""
    out = reference.gate(scores, corrected, ratio, power)
    return scores + 3 * (out - scores)


@mutant("gate", "rounded at every step", killer=GATE + "test_the_mixture_is_rounded_once")
def hasty_gate(scores, corrected, ratio, power=2.0):
    """Stay in half precision throughout."""
    return (1 - ratio**power) * scores + ratio**power * corrected


@mutant(
    "protected_mask",
    "no recent window protects everything",
    killer=VECTOR + "[hubkv-no-recent-window]",
)
def slice_from_minus_zero(tokens, sinks=4, recent=None):
    """Slice the last `recent` tokens off the end."""
    mask = torch.arange(tokens) < sinks
    mask[-(tokens // 50 if recent is None else recent) :] = True
    return mask


@mutant(
    "protected_mask",
    "the recent window is rounded up",
    killer=PROTECTED + "test_the_recent_window_is_a_fiftieth_of_the_sequence",
)
def rounded_up_window(tokens, sinks=4, recent=None):
    """Keep what is left of 98 %, rounded down."""
    return reference.protected_mask(tokens, sinks, tokens - tokens * 49 // 50)
