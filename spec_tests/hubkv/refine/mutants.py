"""Mutants of the refinement, and of the protected tokens."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hubkv/refine")
mutant("""
vector:no-recent-window
  slice_from_minus_zero: without a recent window all tokens are protected
  -     return (positions < sinks) | (positions >= tokens - recent)
  +     mask = positions < sinks
  +     mask[-recent:] = True
  +     return mask
test_the_recent_window_is_a_fiftieth_of_the_sequence
  rounded_up_window: the recent window is rounded up
  - tokens // 50 if
  + tokens - tokens * 49 // 50 if
test_protected_tokens_read_one
  raw_where_protected: protected tokens keep their raw score
  - refined.masked_fill(protected, 1)
  + torch.where(protected, scores, refined)
test_refinement_is_its_four_steps
  overwritten_only: protected tokens compete with others, and count in statistics
  -     content = widen(scores)
  -     if protected is not None:
  -         content = content.masked_fill(protected, 0)
  -     discounted = smd(content, radius, gamma, protected)
  -     weights = head_weights(selectivity(content, protected, epsilon)
  +     content = widen(scores)
  +     discounted = smd(content, radius, gamma)
  +     weights = head_weights(selectivity(content, None, epsilon)
  zeros_where_protected: protected tokens count as scores of 0
  -     discounted = smd(content, radius, gamma, protected)
  -     weights = head_weights(selectivity(content, protected, epsilon)
  +     discounted = smd(content, radius, gamma)
  +     weights = head_weights(selectivity(content, None, epsilon)
  statistics_after_the_discount: the selectivity is that of the discounted scores
  - selectivity(content, protected, epsilon)
  + selectivity(discounted, protected, epsilon)
  always_ungated: the ratio is ignored
  - weights), ratio, power)
  + weights), 1.0, power)
  one_mean_for_the_batch: all batch rows share one mean selectivity
  -     weights = head_weights(selectivity(content, protected, epsilon), tau, minimum, maximum)
  +     spread = selectivity(content, protected, epsilon)
  +     weights = head_weights(spread.flatten(), tau, minimum, maximum).view(spread.shape)
  first_head_is_the_measure: the weight of the first head is 1
  - refined = gate(content
  + weights[..., :1] = 1.0
  +     refined = gate(content
  stubborn_epsilon: epsilon is 1e-6, whatever the settings
  - selectivity(content, protected, epsilon)
  + selectivity(content, protected, 1e-6)
test_refined_scores_are_rounded_once[torch.bfloat16]
  rounded_at_every_step: each step is rounded to the dtype of the scores
  - content = widen(scores)
  + content = scores
test_refined_scores_stay_within_bounds_of_the_raw
  unbounded_weights: head weights are not clipped
  - epsilon), tau, minimum, maximum)
  + epsilon), tau, 2.0**-100, torch.inf)
test_a_large_enough_lead_survives_every_head_and_hub
  overwhelming_weights: head weights are not clipped, and use an eighth power
  - epsilon), tau, minimum, maximum)
  + epsilon), 8.0, 2.0**-100, torch.inf)
test_a_unique_maximum_outranks_its_window_after_all_steps
  inverted_hubs: hubs are discounted instead of the other tokens
  - smd(content, radius, gamma, protected)
  + (1 + gamma) * content - smd(content, radius, gamma, protected)
test_a_heads_weight_cannot_change_what_a_head_keeps_ungated
  weighted_hubs_only: only hubs are multiplied by the weight
  - calibrate(discounted, weights)
  + torch.where(discounted < content, discounted, calibrate(discounted, weights))
test_shifted_scores_start_at_zero_and_keep_their_differences
  shifted_together: all heads are shifted by one minimum
  - scores.amin(-1, keepdim=True)
  + scores.min()
""")
