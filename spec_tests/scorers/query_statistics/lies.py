"""Lies about query statistics."""

import reference
from spec_tests.mutants.make import lies, mutant

lie = lies("scorers/query_statistics")

lie(
    "sinks_of_every_chunk",
    "every chunk has sinks of its own",
    "max(0, sinks - int(skipped[row]))",
    "sinks",
    "test_a_prompt_in_chunks_has_the_moments_of_one_piece",
)
lie(
    "unbiased_covariance",
    "the covariance divides by n - 1",
    "(these - centre) / new",
    "(these - centre) / max(1, new - 1)",
    "test_moments_agree_with_scalar_loops",
)
lie(
    "means_forgotten",
    "a merged covariance forgets how far the means are apart",
    "share * (1 - share) * torch.outer",
    "0 * torch.outer",
    "vector:a-chunk-continues-the-past",
)


@mutant(
    "query_statistics",
    "sinks count",
    killer="scorers/query_statistics/test_laws.py::test_sinks_and_padding_do_not_count",
)
def sinks_counted(queries, sinks=4, valid=None, past=None):
    """Skip nothing, and say otherwise."""
    found = reference.query_statistics(queries, 0, valid, past)
    return found._replace(skipped=found.counted.clamp(max=sinks))
