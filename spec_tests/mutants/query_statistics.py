"""Mutants of query statistics and the mean rotation."""

import torch

import reference
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
