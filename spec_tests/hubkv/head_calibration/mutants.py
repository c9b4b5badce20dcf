"""Mutants of head statistics and weights."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hubkv/head_calibration")
mutant("""
test_selectivity_is_that_of_the_content_alone
  statistics_of_everything: protected tokens count
  - wide[head] if protected is None else wide[head][~protected[head]]
  + wide[head]
  zeros_of_protected: protected tokens count as scores of 0
  - wide[head] if protected is None else wide[head][~protected[head]]
  + wide[head] if protected is None else wide[head].masked_fill(protected[head], 0)
vector:weights-are-clipped-last
  clipped_first: clipped before the power
  - return (share**tau).clamp(minimum, maximum)
  + return share.clamp(minimum, maximum) ** tau
test_scale_does_not_matter_without_epsilon
  epsilon_at_least: epsilon is at least 1e-6
  - content.mean() + epsilon
  + content.mean() + max(epsilon, 1e-6)
test_selectivity_is_deviation_over_mean
  statistics_in_half_precision: scores are rounded to bfloat16 before the statistics
  - wide = widen(scores)
  + wide = widen(scores.bfloat16().to(scores.dtype))
  sample_deviation: the sample's deviation, not the population's
  - std(correction=0)
  + std(correction=min(1, len(content) - 1))
test_equal_scores_have_no_selectivity
  noisy_constant: a difference of squares gives equal scores a deviation above 0
  - (content - content.min()).std(correction=0)
  + ((content**2).mean() - content.mean() ** 2).abs().sqrt()
test_a_layer_without_any_selectivity_weighs_one
  unguarded_quotient: 0 / 0 where no head is selective
  - torch.where(average > 0, c / average, 1)
  + c / average
test_weights_are_not_rounded_before_they_multiply
  rounded_weights: weights are rounded to the dtype of the scores first
  - widen(weights)
  + weights.to(scores.dtype)
test_a_weight_is_the_clipped_power_of_a_heads_share_of_its_layers_mean
  unclipped: weights are not clipped
  - (share**tau).clamp(minimum, maximum)
  + share**tau
  a_mean_of_its_own: a constant is added to selectivities and to their mean
  - c / average
  + (c + 1e-3) / (average + 1e-3)
  one_mean_for_all: all layers share one mean
  - average = c.mean(-1, keepdim=True)
  + average = c.mean()
""")
