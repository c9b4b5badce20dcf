"""Lies about expected attention."""

import math

import torch

import reference
from reference import Scored
from spec_tests.mutants.make import in_turn, mutant


@mutant(
    "expected_attention",
    "epsilon is left out",
    killer="scorers/expected_attention/test_laws.py::test_epsilon_adds_the_length_of_the_value",
)
def epsilon_ignored(statistics, keys, values, rotation, sinks=4, epsilon=0.0, valid=None):
    """Add nothing."""
    return reference.expected_attention(statistics, keys, values, rotation, sinks, 0.0, valid)


@mutant(
    "expected_attention",
    "values do not weigh",
    killer="scorers/expected_attention/test_laws.py::test_scores_scale_with_the_values",
)
def values_ignored(statistics, keys, values, rotation, sinks=4, epsilon=0.0, valid=None):
    """Take every value for one of length 1."""
    same = torch.full_like(values, values.shape[-1] ** -0.5)
    return reference.expected_attention(statistics, keys, same, rotation, sinks, epsilon, valid)


@mutant(
    "expected_attention",
    "the covariance is not halved",
    killer="scorers/expected_attention/test_laws.py::test_scores_are_in_the_ratio_of_mean_exponentials",
)
def covariance_whole(statistics, keys, values, rotation, sinks=4, epsilon=0.0, valid=None):
    """Divide by the width once."""
    wider = statistics._replace(covariance=2 * statistics.covariance)
    return reference.expected_attention(wider, keys, values, rotation, sinks, epsilon, valid)


@mutant(
    "expected_attention",
    "the covariance is ignored",
    killer="test_vectors.py::test_vector[expected_attention-a-covariance-is-over-twice-the-width]",
)
def covariance_ignored(statistics, keys, values, rotation, sinks=4, epsilon=0.0, valid=None):
    """Attend with the mean query."""
    still = statistics._replace(covariance=torch.zeros_like(statistics.covariance))
    return reference.expected_attention(still, keys, values, rotation, sinks, epsilon, valid)


@mutant(
    "expected_attention",
    "sinks share the softmax",
    killer="scorers/expected_attention/test_laws.py::"
    "test_sinks_are_protected_and_the_rest_scores_as_without_them",
)
def sinks_shared(statistics, keys, values, rotation, sinks=4, epsilon=0.0, valid=None):
    """Score every token, and protect the sinks all the same."""
    scored = reference.expected_attention(statistics, keys, values, rotation, 0, epsilon, valid)
    right = reference.expected_attention(statistics, keys, values, rotation, sinks, epsilon, valid)
    return Scored(scored.scores, right.protected)


@mutant(
    "expected_attention",
    "padding shares the softmax",
    killer="scorers/expected_attention/test_laws.py::test_a_padded_row_scores_as_it_does_alone",
)
def expected_padding_seen(statistics, keys, values, rotation, sinks=4, epsilon=0.0, valid=None):
    """Forget the mask until the end."""
    plain = (statistics, keys, values, rotation, sinks, epsilon)
    exact = reference.expected_attention(*plain, valid)
    scores = reference.expected_attention(*plain).scores
    return exact._replace(scores=scores.where(exact.scores != 0, 0))


@mutant(
    "expected_attention",
    "the best of the group counts",
    killer="test_vectors.py::test_vector[expected_attention-the-groups-attention-is-averaged]",
)
def expected_group_max(statistics, keys, values, rotation, sinks=4, epsilon=0.0, valid=None):
    """Score each query head alone and take the largest."""
    group = statistics.mean.shape[-2] // max(1, keys.shape[-3])
    plain = (keys, values, rotation, sinks, epsilon, valid)
    exact = reference.expected_attention(statistics, *plain)
    best = torch.zeros_like(exact.scores)
    for g in range(group):
        part = statistics._replace(
            mean=statistics.mean[..., g::group, :],
            covariance=statistics.covariance[..., g::group, :, :],
        )
        best = torch.maximum(best, reference.expected_attention(part, *plain).scores)
    return exact._replace(scores=best)


@mutant(
    "expected_attention",
    "query heads are dealt out to key heads in turn",
    killer="scorers/expected_attention/test_laws.py::test_scores_agree_with_scalar_loops[4]",
)
def expected_heads_in_turn(statistics, keys, values, rotation, sinks=4, epsilon=0.0, valid=None):
    """Take a head's remainder where its quotient counts."""
    turned = statistics._replace(
        mean=in_turn(statistics.mean[..., None, :], keys.shape[-3])[..., 0, :],
        covariance=in_turn(statistics.covariance, keys.shape[-3]),
    )
    return reference.expected_attention(turned, keys, values, rotation, sinks, epsilon, valid)


@mutant(
    "expected_attention",
    "logits are not scaled by the width",
    killer="scorers/expected_attention/test_laws.py::test_scores_agree_with_scalar_loops",
)
def width_ignored(statistics, keys, values, rotation, sinks=4, epsilon=0.0, valid=None):
    """Stretch the mean query."""
    longer = statistics._replace(mean=statistics.mean * math.sqrt(keys.shape[-1]))
    return reference.expected_attention(longer, keys, values, rotation, sinks, epsilon, valid)
