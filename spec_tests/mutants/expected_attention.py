"""Mutants of query statistics, the mean rotation and expected attention."""

import math

import torch

import reference
from reference import Scored
from spec_tests.mutants.make import mutant


@mutant(
    "query_statistics",
    "sinks count",
    killer="scorers/test_query_statistics.py::test_sinks_and_padding_do_not_count",
)
def sinks_counted(queries, sinks=4, valid=None, past=None):
    """Skip nothing, and say otherwise."""
    found = reference.query_statistics(queries, 0, valid, past)
    return found._replace(skipped=found.counted.clamp(max=sinks))


@mutant(
    "query_statistics",
    "every chunk has sinks of its own",
    killer="scorers/test_query_statistics.py::test_a_prompt_in_chunks_has_the_moments_of_one_piece",
)
def sinks_of_every_chunk(queries, sinks=4, valid=None, past=None):
    """Forget how many have been skipped."""
    if past is not None:
        past = past._replace(skipped=torch.zeros_like(past.skipped))
    return reference.query_statistics(queries, sinks, valid, past)


@mutant(
    "query_statistics",
    "the covariance divides by n - 1",
    killer="scorers/test_query_statistics.py::test_moments_agree_with_scalar_loops",
)
def unbiased_covariance(queries, sinks=4, valid=None, past=None):
    """Correct the bias."""
    found = reference.query_statistics(queries, sinks, valid, past)
    correction = found.counted / (found.counted - 1).clamp(min=1)
    covariance = found.covariance * correction[..., None, None, None].to(found.covariance.dtype)
    return found._replace(covariance=covariance)


@mutant(
    "query_statistics",
    "a merged covariance forgets how far the means are apart",
    killer="test_vectors.py::test_vector[expected_attention-a-chunk-continues-the-past]",
)
def means_forgotten(queries, sinks=4, valid=None, past=None):
    """Average the covariances alone."""
    found = reference.query_statistics(queries, sinks, valid, past)
    if past is None:
        return found
    gap = found.mean - past.mean
    share = ((found.counted - past.counted) / found.counted.clamp(min=1))[..., None, None, None]
    between = gap[..., None] * gap[..., None, :] * (1 - share) / share.clamp(min=1e-9)
    return found._replace(covariance=found.covariance - between.to(found.mean.dtype))


@mutant(
    "mean_rotation",
    "neighbouring channels turn together",
    killer="test_vectors.py::test_vector[expected_attention-halves-turn-together]",
)
def neighbours_turn(frequencies, start, future=512):
    """Interleave the halves."""
    half = frequencies.shape[-1]
    order = torch.arange(2 * half).reshape(2, half).T.flatten()
    return reference.mean_rotation(frequencies, start, future)[..., order, :][..., :, order]


@mutant(
    "mean_rotation",
    "the turn is the other way round",
    killer="scorers/test_mean_rotation.py::test_it_is_the_mean_of_the_rotated_vectors",
)
def turned_back(frequencies, start, future=512):
    """Transpose."""
    return reference.mean_rotation(frequencies, start, future).mT.contiguous()


@mutant(
    "mean_rotation",
    "the middle position stands for all",
    killer="scorers/test_mean_rotation.py::test_stretches_average_to_the_whole",
)
def middle_position(frequencies, start, future=512):
    """Rotate by one angle."""
    return reference.mean_rotation(frequencies, start + future // 2, 1)


@mutant(
    "expected_attention",
    "epsilon is left out",
    killer="scorers/test_expected_attention.py::test_epsilon_adds_the_length_of_the_value",
)
def epsilon_ignored(statistics, keys, values, rotation, sinks=4, epsilon=0.0, valid=None):
    """Add nothing."""
    return reference.expected_attention(statistics, keys, values, rotation, sinks, 0.0, valid)


@mutant(
    "expected_attention",
    "values do not weigh",
    killer="scorers/test_expected_attention.py::test_scores_scale_with_the_values",
)
def values_ignored(statistics, keys, values, rotation, sinks=4, epsilon=0.0, valid=None):
    """Take every value for one of length 1."""
    same = torch.full_like(values, values.shape[-1] ** -0.5)
    return reference.expected_attention(statistics, keys, same, rotation, sinks, epsilon, valid)


@mutant(
    "expected_attention",
    "the covariance is not halved",
    killer="scorers/test_expected_attention.py::test_scores_are_in_the_ratio_of_mean_exponentials",
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
    "sinks do not share the softmax",
    killer="scorers/test_expected_attention.py::test_sinks_are_protected_and_keep_their_score",
)
def sinks_cut(statistics, keys, values, rotation, sinks=4, epsilon=0.0, valid=None):
    """Score what follows the sinks as if they were not there."""
    scored = reference.expected_attention(statistics, keys, values, rotation, sinks, epsilon, valid)
    total = scored.scores.masked_fill(scored.protected, 0)
    return Scored(total, scored.protected)


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
    "logits are not scaled by the width",
    killer="scorers/test_expected_attention.py::test_scores_agree_with_scalar_loops",
)
def width_ignored(statistics, keys, values, rotation, sinks=4, epsilon=0.0, valid=None):
    """Stretch the mean query."""
    longer = statistics._replace(mean=statistics.mean * math.sqrt(keys.shape[-1]))
    return reference.expected_attention(longer, keys, values, rotation, sinks, epsilon, valid)
