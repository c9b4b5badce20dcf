"""Lies about expected attention."""

import torch

import reference
from reference import Scored
from spec_tests.mutants.make import in_turn, lies, mutant

lie = lies("scorers/expected_attention")

lie(
    "epsilon_ignored",
    "epsilon is left out",
    "+= epsilon",
    "+= 0",
    "test_epsilon_adds_the_length_of_the_value",
)
lie(
    "values_ignored",
    "values do not weigh",
    "values[row][:, start:].to(exact).square().sum(-1).sqrt()",
    "1",
    "test_scores_scale_with_the_values",
)
lie(
    "covariance_whole",
    "the covariance is not halved",
    "/ (2 * width)",
    "/ width",
    "test_scores_are_in_the_ratio_of_mean_exponentials",
)
lie(
    "covariance_ignored",
    "the covariance is ignored",
    "((key @ covariance) * key).sum(-1) / (2 * width)",
    "0",
    "vector:a-covariance-is-over-twice-the-width",
)
lie(
    "width_ignored",
    "logits are not scaled by the width",
    "key @ mean / math.sqrt(width)",
    "key @ mean",
    "test_scores_agree_with_scalar_loops",
)


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
