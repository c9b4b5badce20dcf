"""Mutants of CAKE's scores and preferences."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("scorers/cake")
mutant("""
vector:variance-is-unbiased-and-pooling-counts-zeros
  cake_biased: the variance divides by the number of queries
  - (seen.shape[0] - 1)
  + seen.shape[0]
test_scores_agree_with_scalar_loops
  cake_window_at_the_front: the first queries are used, not the last
  - weights = attention_weights(queries[row][:, -window:]
  + weights = attention_weights(queries[row][:, :window]
  cake_uncounted_padding: averages at the ends divide by the number of tokens inside
  - around.sum() / kernel / group
  + around.mean() / group
test_the_window_is_protected_and_has_no_score
  cake_sentinel: protected tokens get a score above all others
            protected[row][:, start:] = True
  +         scores[row][:, start:] = 1 + gamma
scorers/scored/test_laws.py::test_a_padded_row_scores_as_the_row_alone[cake]
  cake_padding_seen: padding is attended to
  - queries[row][:, -window:], keys[row][:, first:])
  + queries[row][:, -window:], keys[row])[..., first:]
test_preferences_agree_with_scalar_loops
  cake_exponents: temperatures are exponents
  - ** (1 / tau1) * change ** (1 / tau2)
  + ** tau1 * change ** tau2
  cake_mean_heads: the entropy is averaged over heads
  - preference = preference.float()
  + preference = preference.float() / max(1, queries.shape[-3])
vector:the-group-is-averaged
  cake_group_max: the largest score of a group counts, not the mean
  - first + t] += around.sum() / kernel / group
  + first + t] = max(scores[row][h // group, first + t], around.sum() / kernel)
test_scores_agree_with_scalar_loops[4]
  cake_heads_in_turn: query head h uses key head h modulo the number of key heads
  -         weights = attention_weights(queries[row][:, -window:], keys
  +         order = sorted(range(group * kv_heads), key=lambda h: h % kv_heads)
  +         weights = attention_weights(queries[row][order, -window:], keys
vector:a-layer-that-is-sure-prefers-nothing
  cake_rooted_below_zero: the entropy may be negative; where its root is NaN the preference is 1
  - entropy.clamp(min=0) ** (1 / tau1) * change ** (1 / tau2)
  + (entropy ** (1 / tau1) * change ** (1 / tau2)).nan_to_num(1)
vector:a-weight-of-nothing-has-no-entropy
  cake_bare_logarithm: the logarithm has no 1e-10, and a NaN counts as 0
  - (seen * (seen + 1e-10).log()).sum()
  + (seen * seen.log()).sum().nan_to_num()
""")
