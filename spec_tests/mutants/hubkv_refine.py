"""Mutants of HubKV's refinement and of its budgets."""

import torch

import reference
from spec_tests.mutants.make import mutant

REFINE, PROTECTED = "hubkv/test_refine.py::", "hubkv/test_refine_protected.py::"


def refine(scores, ratio, protected=None, radius=2, gamma=0.5, tau=0.5, minimum=0.8, maximum=1.2,
           power=2.0, epsilon=1e-6, *, hubs=None, selectivity=None, weigh=None):  # fmt: skip
    """Refine step by step, each in the precision of the scores, with steps of one's own."""
    hubs = reference.hub_mask(scores, radius, protected) if hubs is None else hubs(scores)
    discounted = reference.discount(scores, hubs, gamma)
    spread = (selectivity or (lambda _: reference.selectivity(scores, protected, epsilon)))(
        discounted
    )
    weights = reference.head_weights(spread, tau, minimum, maximum)
    corrected = reference.calibrate(discounted, weights)
    if weigh is not None:
        corrected = weigh(corrected, discounted, hubs)
    out = reference.gate(scores, corrected, ratio, power)
    return out if protected is None else out.masked_fill(protected, 1)


@mutant(
    "hubkv_refine",
    "protected tokens keep their raw score",
    killer=REFINE + "test_protected_tokens_read_one",
)
def raw_where_protected(scores, ratio, protected=None, *rest, **named):
    """Leave out the overwrite."""
    out = reference.hubkv_refine(scores, ratio, protected, *rest, **named)
    return out if protected is None else torch.where(protected, scores, out)


@mutant(
    "hubkv_refine",
    "protected tokens compete and count until they are overwritten",
    killer=REFINE + "test_scores_of_protected_tokens_change_nothing",
)
def overwritten_only(scores, ratio, protected=None, *rest, **named):
    """Refine everything alike."""
    out = reference.hubkv_refine(scores, ratio, None, *rest, **named)
    return out if protected is None else out.masked_fill(protected, 1)


@mutant(
    "hubkv_refine",
    "protected tokens count as zeros",
    killer=REFINE + "test_protected_ends_might_as_well_not_be_there",
)
def zeros_where_protected(scores, ratio, protected=None, *rest, **named):
    """Blank them out and refine everything alike."""
    blank = scores if protected is None else scores.masked_fill(protected, 0)
    return overwritten_only(blank, ratio, protected, *rest, **named)


@mutant(
    "hubkv_refine",
    "rounded at every step",
    killer=REFINE + "test_refined_scores_are_rounded_once[torch.bfloat16]",
)
def rounded_at_every_step(scores, ratio, *rest, **named):
    """Stay in the precision of the scores."""
    return refine(scores, ratio, *rest, **named)


@mutant(
    "hubkv_refine",
    "selectivity of the discounted scores",
    killer=REFINE + "test_refinement_is_its_four_steps",
)
def statistics_after_the_discount(scores, ratio, protected=None, *rest, **named):
    """Take the statistics one step late."""

    def late(discounted):
        return reference.selectivity(discounted, protected, named.get("epsilon", 1e-6))

    return refine(scores, ratio, protected, *rest, **named, selectivity=late)


@mutant(
    "hubkv_refine",
    "the ratio is ignored",
    killer=REFINE + "test_content_is_left_alone_at_ratio_zero",
)
def always_ungated(scores, ratio, *rest, **named):
    """Correct at full strength."""
    return reference.hubkv_refine(scores, 1.0, *rest, **named)


@mutant(
    "hubkv_refine",
    "head weights are not clipped",
    killer=REFINE + "test_refined_scores_stay_within_bounds_of_the_raw",
)
def unbounded_weights(scores, ratio, *rest, **named):
    """Forget the bounds."""
    return reference.hubkv_refine(
        scores, ratio, *rest, **{**named, "minimum": 2.0**-100, "maximum": torch.inf}
    )


@mutant(
    "hubkv_refine",
    "head weights can outweigh any lead",
    killer=REFINE + "test_a_large_enough_lead_survives_every_head_and_hub",
)
def overwhelming_weights(scores, ratio, *rest, **named):
    """Forget the bounds and sharpen the weights."""
    return unbounded_weights(scores, ratio, *rest, **{**named, "tau": 8.0})


@mutant(
    "hubkv_refine",
    "hubs are discounted, the others not",
    killer=REFINE + "test_a_unique_maximum_outranks_its_window_after_all_steps",
)
def inverted_hubs(scores, ratio, protected=None, radius=2, *rest, **named):
    """Turn the mask round."""
    return refine(
        scores, ratio, protected, radius, *rest, **named,
        hubs=lambda s: ~reference.hub_mask(s, radius, protected),
    )  # fmt: skip


@mutant(
    "hubkv_refine",
    "batch rows share one mean",
    killer=REFINE + "test_layers_and_batch_rows_are_refined_apart",
)
def one_mean_for_the_batch(scores, ratio, protected=None, *rest, **named):
    """Take all heads there are for the heads of one layer."""
    flat = scores.flatten(0, -2)
    aside = None if protected is None else protected.flatten(0, -2)
    return reference.hubkv_refine(flat, ratio, aside, *rest, **named).reshape(scores.shape)


@mutant(
    "hubkv_refine",
    "the first head is the measure of the others",
    killer=REFINE + "test_heads_may_come_in_any_order",
)
def first_head_is_the_measure(scores, ratio, *rest, **named):
    """Leave the first head's weight at 1."""
    out = reference.hubkv_refine(scores, ratio, *rest, **named)
    out[..., :1, :] = reference.hubkv_refine(scores[..., :1, :], ratio, *rest, **named)
    return out


@mutant(
    "hubkv_refine",
    "an epsilon that nobody asked for",
    killer=REFINE + "test_powers_of_two_pass_through_without_epsilon",
)
def stubborn_epsilon(scores, ratio, *rest, **named):
    """Ignore the argument."""
    return reference.hubkv_refine(scores, ratio, *rest, **{**named, "epsilon": 1e-6})


@mutant(
    "hubkv_refine",
    "the weight is for hubs only",
    killer=REFINE + "test_a_heads_weight_cannot_change_what_a_head_keeps_ungated",
)
def weighted_hubs_only(scores, ratio, *rest, **named):
    """Leave the others unweighted."""
    return refine(scores, ratio, *rest, **named, weigh=lambda u, s, hubs: torch.where(hubs, u, s))


@mutant(
    "shift_scores",
    "one minimum for all heads",
    killer=PROTECTED + "test_shifted_scores_start_at_zero_and_keep_their_differences",
)
def shifted_together(scores):
    """Take the lowest of all."""
    return scores - scores.min() if scores.numel() else scores.clone()
