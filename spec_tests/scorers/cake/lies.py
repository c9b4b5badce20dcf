"""Lies about CAKE's scores and preferences."""

import torch

import reference
from reference import Scored
from spec_tests.mutants.make import in_turn, lies, mutant

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
    "test_a_padded_row_scores_as_it_does_alone",
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


def rescored(queries, keys, window, gamma, kernel, valid, ddof=1, counted=True, largest=False):
    """Score a batch by weights taken from the reference, with one thing changed."""
    exact = reference.cake(queries, keys, window, gamma, kernel, valid)
    tokens, (kv_heads, group) = keys.shape[-2], (keys.shape[-3], 1)
    group = queries.shape[-3] // max(1, kv_heads)
    scores, old = torch.zeros_like(exact.scores), tokens - window
    if valid is not None or old < 1 or not queries.numel():
        return exact
    weights = reference.attention_weights(queries[..., -window:, :], keys)[..., :old]
    raw = weights.mean(-2) + gamma * weights.var(-2, correction=ddof)
    pooled = torch.nn.functional.avg_pool1d(
        raw.flatten(0, -2)[:, None], kernel, 1, kernel // 2, count_include_pad=counted
    )
    heads = pooled.reshape(*raw.shape[:-2], kv_heads, group, old)
    scores[..., :old] = heads.amax(-2) if largest else heads.mean(-2)
    return Scored(scores, exact.protected)


@mutant(
    "cake",
    "the best of the group counts",
    killer="test_vectors.py::test_vector[cake-the-group-is-averaged]",
)
def cake_group_max(queries, keys, window=32, gamma=200.0, kernel=5, valid=None):
    """Reduce the group by its maximum."""
    return rescored(queries, keys, window, gamma, kernel, valid, largest=True)


@mutant(
    "cake",
    "query heads are dealt out to key heads in turn",
    killer="scorers/cake/test_laws.py::test_scores_agree_with_scalar_loops[4]",
)
def cake_heads_in_turn(queries, keys, window=32, gamma=200.0, kernel=5, valid=None):
    """Take a head's remainder where its quotient counts."""
    return reference.cake(in_turn(queries, keys.shape[-3]), keys, window, gamma, kernel, valid)


@mutant(
    "cake_preference",
    "all weights are held at once",
    killer="scorers/cake/test_laws.py::test_nothing_of_queries_by_tokens_is_allocated[cake_preference]",
)
def cake_all_weights_at_once(queries, keys, window=32, tau1=1.0, tau2=1.0, valid=None):
    """Attend with every query, and forget it."""
    reference.attention_weights(queries, keys)
    return reference.cake_preference(queries, keys, window, tau1, tau2, valid)


@mutant(
    "cake_preference",
    "heads are averaged in the entropy and the largest counts in the variance",
    killer="scorers/cake/test_laws.py::test_twice_the_heads_prefer_four_times_as_much",
)
def cake_mean_heads(queries, keys, window=32, tau1=1.0, tau2=1.0, valid=None):
    """Divide by the number of heads once."""
    preference = reference.cake_preference(queries, keys, window, tau1, tau2, valid)
    return preference / max(1, queries.shape[-3])


@mutant(
    "cake_preference",
    "an entropy may be negative",
    killer="test_vectors.py::test_vector[cake-a-layer-that-is-sure-prefers-nothing]",
)
def cake_rooted_below_zero(queries, keys, window=32, tau1=1.0, tau2=1.0, valid=None):
    """Take the root of what 1e-10 leaves of an entropy of nothing."""
    preference = reference.cake_preference(queries, keys, window, tau1, tau2, valid)
    if valid is not None or keys.shape[-2] <= window or not queries.numel():
        return preference
    seen = reference.attention_weights(queries[..., -window:, :].double(), keys.double())
    seen = seen[..., : keys.shape[-2] - window]
    entropy = -(seen * (seen + 1e-10).log()).sum((-3, -2, -1))
    return torch.where(entropy < 0, entropy ** (1 / tau1) * preference, preference).float()


@mutant(
    "cake_preference",
    "the logarithm has no 1e-10",
    killer="test_vectors.py::test_vector[cake-a-weight-of-nothing-has-no-entropy]",
)
def cake_bare_logarithm(queries, keys, window=32, tau1=1.0, tau2=1.0, valid=None):
    """Take the entropy's logarithm of the weights themselves."""
    exact = reference.cake_preference(queries, keys, window, tau1, tau2, valid)
    old = keys.shape[-2] - window
    if valid is not None or old < 1:
        return exact
    weights = reference.attention_weights(queries[..., -window:, :].double(), keys)[..., :old]
    entropy = -(weights * weights.log()).sum((-3, -2, -1))
    return (entropy ** (1 / tau1) * weights.var(-2).sum((-2, -1)) ** (1 / tau2)).float()
