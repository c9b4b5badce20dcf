"""Mutants of attention over a HEX cache."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hex/attention")
mutant("""
test_padding_draws_nothing_and_a_query_at_padding_reads_nothing
  padding_is_read: padding is attended to
  - first = 0 if valid is None else int((~valid[row]).sum())
  + first = 0
test_attention_over_a_cache_is_attention_over_what_it_restores
  own_scale_forgotten: the argument `scale` is ignored
  - values[row][:, first:], causal, scale)
  + values[row][:, first:], causal, None)
  mass_of_one_head: the mass counts the first query head alone
  - causal, scale).sum((0, 1))
  + causal, scale)[:1].sum((0, 1))
test_the_log_sum_exp_is_that_of_every_logit_that_a_query_sees
  sum_sees_later: the log-sum-exp counts tokens after the query
  - scaled_logits(*part, causal, scale)
  + scaled_logits(*part, False, scale)
test_attention_to_a_cache_merges_with_attention_to_other_tokens
  sum_at_most_zero: the log-sum-exp is at most 0
  - sums if log_sum_exp else None
  + sums.minimum(sums * 0) if log_sum_exp else None
test_attention_over_a_cache_in_half_precision_reads_it_unrounded
  attends_to_what_is_rounded: restored entries are rounded to the dtype of the cache
  - keys, values = read_unrounded(cache)
  + keys, values = (x.to(cache.residual_keys.dtype) for x in read_unrounded(cache))
""")
