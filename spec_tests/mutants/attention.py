"""Mutants of attention."""

import reference
from spec_tests.mutants.make import mutant

LAWS = "attention/test_attention.py::"


def share(queries, *caches):
    """Repeat each key head for the query heads that read it."""
    return [cache.repeat_interleave(queries.shape[-3] // cache.shape[-3], -3) for cache in caches]


@mutant(
    "attention",
    "query head h reads key head h modulo the number of key heads",
    killer="test_vectors.py::test_vector[attention-consecutive-heads-share-a-cache]",
)
def heads_dealt_in_turn(queries, keys, values, causal=True, scale=None):
    """Repeat the cache as a block instead of head by head."""
    group = queries.shape[-3] // keys.shape[-3]
    repeats = (*[1] * (keys.ndim - 3), group, 1, 1)
    return reference.attention(queries, keys.repeat(repeats), values.repeat(repeats), causal, scale)


@mutant(
    "attention_weights",
    "the first query sees the first key only, however long the cache",
    killer=LAWS + "test_a_causal_query_sees_up_to_its_own_position_and_no_further",
)
def causal_from_the_first_key(queries, keys, causal=True, scale=None):
    """Forget where the queries sit."""
    weights = reference.attention_weights(queries, keys, False, scale)
    weights = weights.tril() if causal else weights
    return weights / weights.sum(-1, keepdim=True)


@mutant(
    "attention_weights",
    "a query sees the token after it",
    killer=LAWS + "test_a_causal_query_sees_up_to_its_own_position_and_no_further",
)
def causal_late_by_one(queries, keys, causal=True, scale=None):
    """Draw the diagonal one too far."""
    weights = reference.attention_weights(queries, keys, False, scale)
    weights = weights.tril(weights.shape[-1] - weights.shape[-2] + 1) if causal else weights
    return weights / weights.sum(-1, keepdim=True)


@mutant(
    "attention_weights",
    "weights beyond the mask are dropped after the softmax, not before",
    killer=LAWS + "test_the_weights_of_a_query_sum_to_one",
)
def masked_after_the_softmax(queries, keys, causal=True, scale=None):
    """Zero what is unseen and leave the rest as it is."""
    weights = reference.attention_weights(queries, keys, False, scale)
    return weights.tril(weights.shape[-1] - weights.shape[-2]) if causal else weights


@mutant(
    "attention_weights",
    "logits are not divided by the root of the width",
    killer="test_vectors.py::test_vector[attention-scaled-by-the-root-of-the-width]",
)
def unscaled_logits(queries, keys, causal=True, scale=None):
    """Leave the default scale at 1."""
    return reference.attention_weights(queries, keys, causal, 1.0 if scale is None else scale)


@mutant(
    "attention",
    "the values are read last first",
    killer=LAWS + "test_without_causality_the_order_of_the_cache_is_irrelevant",
)
def values_in_reverse(queries, keys, values, causal=True, scale=None):
    """Mix the values in the wrong order."""
    return reference.attention(queries, keys, values.flip(-2), causal, scale)


@mutant(
    "attention_error",
    "the deviation is squared",
    killer="test_vectors.py::test_vector[attention-deviation-is-euclidean]",
)
def squared_deviation(
    queries, keys, values, compressed_keys, compressed_values, causal=True, scale=None
):
    """Forget the root."""
    return reference.attention_error(
        queries, keys, values, compressed_keys, compressed_values, causal, scale
    ).square()


@mutant(
    "attention_error",
    "the compressed keys are ignored",
    killer=LAWS + "test_the_deviation_is_the_distance_between_the_outputs",
)
def compressed_keys_ignored(
    queries, keys, values, compressed_keys, compressed_values, causal=True, scale=None
):
    """Attend to the original keys twice."""
    return reference.attention_error(queries, keys, values, keys, compressed_values, causal, scale)
