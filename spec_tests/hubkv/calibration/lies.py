"""Lies about head statistics and weights."""

from spec_tests.mutants.make import lies

lie = lies("hubkv/calibration")
lie("""
test_selectivity_is_that_of_the_content_alone
  statistics_of_everything: protected tokens count
  - wide[head] if protected is None else wide[head][~protected[head]]
  + wide[head]
test_layers_are_averaged_apart
  one_mean_for_all: one mean over all layers
  - average = mean(c)
  + average = c.mean()
vector:weights-are-clipped-last
  clipped_first: clipped before the power
  - return weights.clamp(minimum, maximum)
  + return (share.clamp(minimum, maximum) ** tau)
test_scale_does_not_matter_without_epsilon
  mean_as_it_comes: the mean of subnormal scores is rounded as they are
  -         content, power = balanced(content)
  +         power = content.new_ones(1)
test_weights_stay_within_the_bounds
  unclipped: nothing is clipped
  - weights.clamp(minimum, maximum)
  + weights
test_a_layer_without_any_selectivity_weighs_one
  unguarded_quotient: 0 / 0 where no head is selective
  - torch.where(average > 0, c / average.masked_fill(average == 0, 1), 1)
  + c / average
test_a_score_that_a_weight_raises_beyond_the_range_is_refused
  calibrated_to_infinity: what overflows is infinite
  -     errors.in_range("scores", calibrated)
  +     pass
test_weights_are_not_rounded_before_they_multiply
  rounded_weights: the weights are rounded to the scores' precision first
  - widen(weights)
  + weights.to(scores.dtype)
test_common_laws.py::test_gradients_are_finite_beside_zeros_too[head_weights]
  steep_root: the slope at a head without selectivity is infinite, and its gradient NaN
  - share.masked_fill(share == 0, 1) ** tau
  + share**tau
""")

lie = lies("careful")
lie("""
hubkv/calibration/test_laws.py::test_selectivity_is_deviation_over_mean
  sample_deviation: the sample's deviation, not the population's
  - return root(mean((above - mean(above)) ** 2))
  + return mean((above - mean(above)) ** 2 * x.shape[-1] / max(1, x.shape[-1] - 1)).sqrt()
hubkv/calibration/test_laws.py::test_equal_scores_have_a_selectivity_of_exactly_zero
  noisy_constant: equal scores deviate by a rounding error
  - return root(mean((above - mean(above)) ** 2))
  + return ((x * x).mean(-1) - x.mean(-1) ** 2).abs().sqrt()
hubkv/calibration/test_laws.py::test_scale_does_not_matter_without_epsilon
  power_below_all: the reciprocal of a subnormal power overflows
  - .clamp(min=torch.finfo(x.dtype).tiny)
  +
hubkv/calibration/test_laws.py::test_weights_forget_the_size_of_the_selectivity
  sums_as_they_come: the sum of large numbers overflows
  - above, power = balanced(x - low)
  + above, power = x - low, 1
attention/test_laws.py::test_the_deviation_scales_with_the_values_and_ignores_which_cache_is_first
  lengths_as_they_come: squares overflow, or vanish
  -     x, power = balanced(x)
  +     power = x.new_ones(*x.shape[:-1], 1)
        return root(x.square()
attention/test_laws.py::test_an_uncompressed_cache_has_no_deviation
  power_of_nothing: 0 is divided by 0
  - torch.where(x > 0, x / (2 * torch.frexp(x).mantissa), 1)
  + x / (2 * torch.frexp(x).mantissa)
test_common_laws.py::test_gradients_are_finite_beside_zeros_too[knorm]
  infinitely_steep: the slope of a length of 0 is infinite, and its gradient NaN
  - x.masked_fill(nothing, 1).sqrt()
  + x.sqrt()
test_common_laws.py::test_gradients_are_finite_beside_zeros_too[edges]
  steep_power: 0 is divided by 0 in the gradient of a power of two
  -     x = x.detach()
  +     x = x.clone()
""")
