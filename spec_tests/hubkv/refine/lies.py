"""Lies about refinement and what is set aside."""

from spec_tests.mutants.make import lies

lie = lies("hubkv/refine")

lie(
    "slice_from_minus_zero",
    "no recent window protects everything",
    "return (positions < sinks) | (positions >= tokens - recent)",
    "mask = positions < sinks\n    mask[-recent:] = True\n    return mask",
    "vector:no-recent-window",
)
lie(
    "rounded_up_window",
    "the recent window is rounded up",
    "tokens // 50 if",
    "tokens - tokens * 49 // 50 if",
    "test_the_recent_window_is_a_fiftieth_of_the_sequence",
)
lie(
    "raw_where_protected",
    "protected tokens keep their raw score",
    "refined.masked_fill(protected, 1)",
    "torch.where(protected, scores, refined)",
    "test_protected_tokens_read_one",
)
lie(
    "overwritten_only",
    "protected tokens compete and count until they are overwritten",
    "content = widen(scores)\n"
    "    if protected is not None:\n"
    "        content = content.masked_fill(protected, 0)\n"
    "    discounted = smd(content, radius, gamma, protected)\n"
    "    weights = head_weights(selectivity(content, protected, epsilon)",
    "content = widen(scores).clamp(max=2.0**60)  # no sum overflows\n"
    "    discounted = smd(content, radius, gamma)\n"
    "    weights = head_weights(selectivity(content, None, epsilon)",
    "test_scores_of_protected_tokens_change_nothing",
)
lie(
    "zeros_where_protected",
    "protected tokens count as zeros",
    "discounted = smd(content, radius, gamma, protected)\n"
    "    weights = head_weights(selectivity(content, protected, epsilon)",
    "discounted = smd(content, radius, gamma)\n"
    "    weights = head_weights(selectivity(content, None, epsilon)",
    "test_protected_ends_might_as_well_not_be_there",
)
lie(
    "rounded_at_every_step",
    "rounded at every step",
    "content = widen(scores)",
    "content = scores",
    "test_refined_scores_are_rounded_once[torch.bfloat16]",
)
lie(
    "statistics_after_the_discount",
    "selectivity of the discounted scores",
    "selectivity(content, protected, epsilon)",
    "selectivity(discounted, protected, epsilon)",
    "test_refinement_is_its_four_steps",
)
lie(
    "always_ungated",
    "the ratio is ignored",
    "gate(content, corrected, ratio, power)",
    "gate(content, corrected, 1.0, power)",
    "test_content_is_left_alone_at_ratio_zero",
)
lie(
    "unbounded_weights",
    "head weights are not clipped",
    "epsilon), tau, minimum, maximum)",
    "epsilon), tau, 2.0**-100, torch.inf)",
    "test_refined_scores_stay_within_bounds_of_the_raw",
)
lie(
    "overwhelming_weights",
    "head weights can outweigh any lead",
    "epsilon), tau, minimum, maximum)",
    "epsilon), 8.0, 2.0**-100, torch.inf)",
    "test_a_large_enough_lead_survives_every_head_and_hub",
)
lie(
    "inverted_hubs",
    "hubs are discounted, the others not",
    "smd(content, radius, gamma, protected)",
    "(1 + gamma) * content - smd(content, radius, gamma, protected)",
    "test_a_unique_maximum_outranks_its_window_after_all_steps",
)
lie(
    "one_mean_for_the_batch",
    "batch rows share one mean",
    "weights = head_weights(selectivity(content, protected, epsilon), tau, minimum, maximum)",
    "spread = selectivity(content, protected, epsilon)\n"
    "    weights = head_weights(spread.flatten(), tau, minimum, maximum).view(spread.shape)",
    "test_layers_and_batch_rows_are_refined_apart",
)
lie(
    "first_head_is_the_measure",
    "the first head is the measure of the others",
    'errors.in_range("scores", weights)',
    "weights[..., :1] = 1.0",
    "test_heads_may_come_in_any_order",
)
lie(
    "stubborn_epsilon",
    "an epsilon that nobody asked for",
    "selectivity(content, protected, epsilon)",
    "selectivity(content, protected, 1e-6)",
    "test_powers_of_two_pass_through_without_epsilon",
)
lie(
    "weighted_hubs_only",
    "the weight is for hubs only",
    "corrected = calibrate(discounted.double(), weights)",
    "corrected = calibrate(discounted.double(), weights)\n"
    "    corrected = torch.where(discounted < content, discounted.double(), corrected)",
    "test_a_heads_weight_cannot_change_what_a_head_keeps_ungated",
)
lie(
    "shifted_together",
    "one minimum for all heads",
    "scores.amin(-1, keepdim=True)",
    "scores.min()",
    "test_shifted_scores_start_at_zero_and_keep_their_differences",
)
