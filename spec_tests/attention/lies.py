"""Lies about attention."""

from spec_tests.mutants.make import lies

lie = lies("attention")

lie(
    "heads_dealt_in_turn",
    "query head h reads value head h modulo the number of key heads",
    "values[..., h // group, :, :]",
    "values[..., h % values.shape[-3], :, :]",
    "vector:consecutive-heads-share-a-cache",
)
lie(
    "causal_from_the_first_key",
    "the first query sees the first key only, however long the cache",
    "tokens - count + t + 1 if causal",
    "t + 1 if causal",
    "test_a_causal_query_sees_up_to_its_own_position_and_no_further",
)
lie(
    "causal_late_by_one",
    "a query sees the token after it",
    "tokens - count + t + 1 if causal",
    "tokens - count + t + 2 if causal",
    "test_a_causal_query_sees_up_to_its_own_position_and_no_further",
)
lie(
    "unscaled_logits",
    "logits are not divided by the root of the width",
    "scale = 1 / math.sqrt(queries.shape[-1]) if",
    "scale = 1.0 if",
    "vector:scaled-by-the-root-of-the-width",
)
lie(
    "values_in_reverse",
    "the values are read last first",
    "@ values[",
    "@ values.flip(-2)[",
    "test_without_causality_the_order_of_the_cache_is_irrelevant",
)
lie(
    "squared_deviation",
    "the deviation is squared",
    "(before - after).norm(dim=-1)",
    "(before - after).square().sum(-1)",
    "vector:deviation-is-euclidean",
)
lie(
    "compressed_keys_ignored",
    "the compressed keys are ignored",
    "attention(exact, compressed_keys,",
    "attention(exact, keys,",
    "test_the_deviation_is_the_distance_between_the_outputs",
)
SUM = "test_a_weight_is_the_power_of_what_a_logit_exceeds_the_log_sum_exp_by"
OWN = "(logits - log_sum_exp[..., h, t, None]).exp()"
lie("sum_ignored", "the log-sum-exp is found anew", OWN, "logits.softmax(-1)", SUM)
lie("sum_of_base_two", "it is one of base two", OWN, OWN.replace("exp()", "exp2()"), SUM)
lie("sum_of_another_head", "it is that of another head", OWN, OWN.replace("h,", "h - 1,"), SUM)
lie("sum_scaled_twice", "logits are scaled twice", OWN, OWN.replace("(l", "(scale * l"), SUM)
lie(
    "any_sum",
    "a log-sum-exp of other logits is taken",
    "@requires(wide, grouped, aligned, normalizing)",
    "@requires(wide, grouped, aligned)",
    "test_a_log_sum_exp_of_other_logits_is_refused[attention_weights]",
)
lie(
    "masked_after_the_softmax",
    "weights beyond the mask are dropped after the softmax, not before",
    """:seen, :]).sum(-1) * scale
            if log_sum_exp is None:
                weights[..., h, t, :seen] = logits.softmax(-1)""",
    """:, :]).sum(-1) * scale
            if log_sum_exp is None:
                weights[..., h, t, :seen] = logits.softmax(-1)[..., :seen]""",
    "test_the_weights_of_a_query_sum_to_one",
)
