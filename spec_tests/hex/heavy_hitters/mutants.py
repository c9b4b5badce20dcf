"""Mutants of heavy hitters."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hex/heavy_hitters")
mutant("""
vector:a-span-is-weighed-by-a-softmax-over-everything
  mass_of_the_span_alone: weights are a softmax over the span alone
  +     keys = keys if span is None else keys[..., keys.shape[-2] - span :, :]
        tokens, count = keys.shape[-2], queries.shape[-2]
test_the_mass_of_a_token_is_every_weight_on_it_summed
  loud_queries: queries are multiplied by 3
  - query = queries[..., q : q + 1, :]
  + query = 3 * queries[..., q : q + 1, :]
  mean_over_heads: mass is averaged over the heads
  - += weights[..., i, 0, :]
  + += weights[..., i, 0, :] / queries.shape[-3]
vector:logarithms-of-whole-numbers-are-weights-in-their-ratio
  unscaled_mass: logits are not divided by the root of the width
  - query = queries[..., q : q + 1, :]
  + query = queries[..., q : q + 1, :] * queries.shape[-1] ** 0.5
test_a_weight_is_what_the_log_sum_exp_leaves_of_a_logit
  sum_of_the_first_query: the log-sum-exp is that of the first query
  - known_of(log_sum_exp, slice(q, q + 1))
  + known_of(log_sum_exp, slice(1))
test_a_normalized_mass_is_a_mean_over_the_queries_that_see_the_token
  watchers_of_every_later_token: as many queries see a token as tokens follow, given or not
  - max(1, min(count, tokens - t) if causal else count)
  + max(1, tokens - t if causal else count)
  mean_over_all_queries: mass is divided by all queries, including those that do not see the token
  - max(1, min(count, tokens - t) if causal else count)
  + max(1, count)
test_heavy_hitters_are_exactly_as_many_as_the_floor
  count_to_the_nearest: the count is rounded to the nearest
  - min(Fraction(str(ratio)) * tokens // 1,
  + min(round(Fraction(str(ratio)) * tokens),
test_of_equal_masses_the_earliest_are_heavy
  heavy_by_threshold: every token as heavy as the lightest heavy hitter is marked
            heavy.scatter_(-1, order[..., rank : rank + 1], True)
  -     return heavy
  +     least = mass.masked_fill(~heavy, torch.inf)
  +     return mass >= least.amin(-1, keepdim=True) if tokens else heavy
test_the_window_is_the_last_tokens
  window_one_short: the window is one token too short
  - torch.arange(tokens) >= tokens - recent
  + torch.arange(tokens) > tokens - recent
  minus_zero_slice: a window of 0 tokens covers all tokens
  - torch.arange(tokens) >= tokens - recent
  + torch.arange(tokens) >= (tokens - recent if recent else 0)
test_the_dynamic_mask_is_the_union
  never_both: heavy hitters are always taken outside the window
  - heavy_hitter_mask(mass, ratio, recent, outside_recent)
  + heavy_hitter_mask(mass, ratio, recent, True)
test_no_token_left_out_outweighs_a_heavy_hitter
  heavy_by_half_precision: masses are ranked in bfloat16
  - mass[..., :rivals].sort(
  + mass[..., :rivals].bfloat16().sort(
""")
