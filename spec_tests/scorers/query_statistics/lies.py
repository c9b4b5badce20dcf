"""Lies about query statistics."""

import torch

import reference
from spec_tests.mutants.make import mutant


@mutant(
    "query_statistics",
    "sinks count",
    killer="scorers/query_statistics/test_laws.py::test_sinks_and_padding_do_not_count",
)
def sinks_counted(queries, sinks=4, valid=None, past=None):
    """Skip nothing, and say otherwise."""
    found = reference.query_statistics(queries, 0, valid, past)
    return found._replace(skipped=found.counted.clamp(max=sinks))


@mutant(
    "query_statistics",
    "every chunk has sinks of its own",
    killer="scorers/query_statistics/test_laws.py::test_a_prompt_in_chunks_has_the_moments_of_one_piece",
)
def sinks_of_every_chunk(queries, sinks=4, valid=None, past=None):
    """Forget how many have been skipped."""
    if past is not None:
        past = past._replace(skipped=torch.zeros_like(past.skipped))
    return reference.query_statistics(queries, sinks, valid, past)


@mutant(
    "query_statistics",
    "the covariance divides by n - 1",
    killer="scorers/query_statistics/test_laws.py::test_moments_agree_with_scalar_loops",
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
    killer="test_vectors.py::test_vector[query_statistics-a-chunk-continues-the-past]",
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
