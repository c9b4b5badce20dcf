"""Mutants of attention."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("attention")
mutant("""
vector:consecutive-heads-share-a-cache
  heads_dealt_in_turn: query head h reads value head h modulo the number of key heads
  - values[..., h // group, :, :]
  + values[..., h % values.shape[-3], :, :]
vector:consecutive-heads-read-the-same-keys
  keys_dealt_in_turn: query head h reads key head h modulo the number of key heads
  - widen(keys).repeat_interleave(group, -3)
  + widen(keys)[..., torch.arange(queries.shape[-3]) % keys.shape[-3], :, :]
vector:scaled-by-the-root-of-the-width
  unscaled_logits: logits are not divided by the root of the width
  - scale = 1 / math.sqrt(queries.shape[-1]) if
  + scale = 1.0 if
test_agrees_with_scalar_loops
  values_in_reverse: the values are read last first
  - @ values[
  + @ values.flip(-2)[
  softmax_over_queries: the softmax runs over the queries, not over the tokens
  - logits.softmax(-1)
  + logits.softmax(-2)
  masked_after_the_softmax: weights beyond the mask are dropped after the softmax, not before
  -     logits = scaled_logits(queries, keys, causal, scale)
  +     logits = scaled_logits(queries, keys, False, scale)
        if log_sum_exp is None:
  -         return logits.softmax(-1)
  +         weights = logits.softmax(-1)
  +         return weights.tril(keys.shape[-2] - queries.shape[-2]) if causal else weights
  causal_from_the_first_key: the first query sees the first key only, however long the cache
  - tokens - count + t + 1 if causal
  + t + 1 if causal
  causal_late_by_one: a query sees the token after it
  - tokens - count + t + 1 if causal
  + tokens - count + t + 2 if causal
vector:deviation-is-euclidean
  squared_deviation: the deviation is squared
  - (before - after).norm(dim=-1)
  + (before - after).square().sum(-1)
test_the_deviation_is_the_distance_between_the_outputs
  compressed_keys_ignored: the compressed keys are ignored
  - attention(exact, compressed_keys,
  + attention(exact, keys,
test_a_weight_is_the_power_of_what_a_logit_exceeds_the_log_sum_exp_by
  sum_ignored: the log-sum-exp argument is ignored
  - (logits - log_sum_exp[..., None]).exp()
  + logits.softmax(-1)
  sum_of_base_two: the log-sum-exp is taken to base two
  - (logits - log_sum_exp[..., None]).exp()
  + (logits - log_sum_exp[..., None]).exp2()
  sum_of_another_head: the log-sum-exp is that of another head
  - (logits - log_sum_exp[..., None]).exp()
  + (logits - log_sum_exp.roll(1, -2)[..., None]).exp()
  sum_scaled_twice: logits are scaled twice
  - (logits - log_sum_exp[..., None]).exp()
  + (logits / math.sqrt(queries.shape[-1]) - log_sum_exp[..., None]).exp()
test_a_log_sum_exp_that_is_not_finite_is_refused[attention_weights]
  infinite_sum: a log-sum-exp that is not finite is accepted
  - aligned, finite_log_sum_exp)
  + aligned)
test_requires_grad.py::test_a_call_that_asks_for_gradients_gives_the_same_values[attention]
  dropped_in_training: weights are dropped at random where gradients are computed
  - weights = attention_weights(queries, keys, causal, scale)
  + weights = attention_weights(queries, keys, causal, scale)
  +     weights = torch.dropout(weights, 0.5, weights.requires_grad)
""")
