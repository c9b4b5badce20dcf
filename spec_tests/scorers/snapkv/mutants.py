"""Mutants of SnapKV."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("scorers/snapkv")
mutant("""
test_a_score_is_the_pooled_attention_of_the_window
  window_at_the_front: the first queries are used, not the last
  - queries[row][:, -window:]
  + queries[row][:, :window]
  uncounted_padding: averages at the ends divide by the number of tokens inside
  - around.sum() / kernel
  + around.mean()
  pooled_before_cut: tokens of the window are pooled with those before it
  - scores[row][h // group, first:start] += _pooled(observed[h], kernel, pooling) / group
  + pooled = _pooled(weights[h].sum(0), kernel, pooling) / group
  +             scores[row][h // group, first:start] += pooled[: start - first]
  always_max: pooling always takes maxima
  - if pooling == "max" else
  + if pooling else
  sum_over_the_group: scores are summed over the group, not averaged
  - kernel, pooling) / group
  + kernel, pooling)
  mean_over_queries: scores are averaged over queries, not summed
  - kernel, pooling) / group
  + kernel, pooling) / group / window
vector:maxima-are-taken-before-the-group-is-averaged
  mean_before_max: the group is averaged before pooling takes maxima
  - _pooled(observed[h], kernel, pooling) / group
  + _pooled(observed.unflatten(0, (kv_heads, -1)).mean(1)[h // group], kernel, pooling) / group
vector:the-window-itself-draws-its-share
  normalised_again: weights are normalised over the tokens before the window
  -             observed += weights[:, q, : start - first]
  +             seen = weights[:, q, : start - first]
  +             observed += seen / seen.sum(-1, keepdim=True)
test_the_last_window_of_real_tokens_is_protected_and_scores_nothing
  sentinel_in_the_window: tokens of the window score 1
            protected[row][:, start:] = True
  +         scores[row][:, start:] = 1
test_a_score_is_of_what_the_log_sum_exp_leaves_of_a_logit
  sums_at_the_front: the log-sum-exp is that of the first queries
  - known_of(log_sum_exp, slice(-window, None), row)
  + known_of(log_sum_exp, slice(window), row)
scorers/scored/test_laws.py::test_a_padded_row_scores_as_the_row_alone[snapkv]
  window_sees_padding: padding is attended to
  - keys[row][:, first:], log_sum_exp=log_sum)
  + keys[row], log_sum_exp=log_sum)[..., first:]
""")
