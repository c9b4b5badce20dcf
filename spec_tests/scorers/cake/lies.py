"""Lies about CAKE's scores and preferences."""

from spec_tests.mutants.make import lies

lie = lies("scorers/cake")

lie(
    "cake_biased",
    "the variance divides by the number of queries",
    "(seen.shape[0] - 1)",
    "seen.shape[0]",
    "vector:variance-is-unbiased-and-pooling-counts-zeros",
)
lie(
    "cake_uncounted_padding",
    "pooling at the ends divides by what lies inside",
    "around.sum() / kernel / group",
    "around.mean() / group",
    "test_scores_agree_with_scalar_loops",
)
lie(
    "cake_sentinel",
    "protected tokens score more than any other",
    "protected[row][:, start:] = True",
    "protected[row][:, start:] = True\n        scores[row][:, start:] = 1 + gamma",
    "test_the_window_is_protected_and_has_no_score",
)
lie(
    "cake_padding_seen",
    "padding is attended to",
    "queries[row][:, -window:], keys[row][:, first:])",
    "queries[row][:, -window:], keys[row])[..., first:]",
    "scorers/scored/test_laws.py::test_a_padded_row_scores_as_the_row_alone[cake]",
)
lie(
    "cake_window_at_the_front",
    "the first queries observe, not the last",
    "weights = attention_weights(queries[row][:, -window:]",
    "weights = attention_weights(queries[row][:, :window]",
    "test_a_window_of_queries_is_enough",
)
lie(
    "cake_exponents",
    "temperatures are exponents",
    "** (1 / tau1) * change ** (1 / tau2)",
    "** tau1 * change ** tau2",
    "test_temperatures_are_roots",
)
lie(
    "cake_group_max",
    "the best of the group counts",
    "first + t] += around.sum() / kernel / group",
    "first + t] = max(scores[row][h // group, first + t], around.sum() / kernel)",
    "vector:the-group-is-averaged",
)
lie(
    "cake_heads_in_turn",
    "query heads are dealt out to key heads in turn",
    "attention_weights(queries[row][:, -window:], keys",
    "attention_weights(queries[row][sorted(range(group * kv_heads), key=lambda h: h % kv_heads),"
    " -window:], keys",
    "test_scores_agree_with_scalar_loops[4]",
)
lie(
    "cake_all_weights_at_once",
    "all weights are held at once",
    "    batch, tokens =",
    "    attention_weights(queries, keys)\n    batch, tokens =",
    "scorers/snapkv/test_laws.py::test_nothing_of_queries_by_tokens_is_allocated[cake_preference]",
)
lie(
    "cake_mean_heads",
    "heads are averaged in the entropy and the largest counts in the variance",
    "preference = preference.float()",
    "preference = preference.float() / max(1, queries.shape[-3])",
    "test_twice_the_heads_prefer_four_times_as_much",
)
lie(
    "cake_rooted_below_zero",
    "an entropy may be negative, and where it has no root the layer prefers 1",
    "entropy.clamp(min=0) ** (1 / tau1) * change ** (1 / tau2)",
    "(entropy ** (1 / tau1) * change ** (1 / tau2)).nan_to_num(1)",
    "vector:a-layer-that-is-sure-prefers-nothing",
)
lie(
    "cake_bare_logarithm",
    "the logarithm has no 1e-10, and a head that is no number counts as nothing",
    "(seen * (seen + 1e-10).log()).sum()",
    "(seen * seen.log()).sum().nan_to_num()",
    "vector:a-weight-of-nothing-has-no-entropy",
)
