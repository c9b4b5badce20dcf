"""Lies about query statistics."""

from spec_tests.mutants.make import lies

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
lie(
    "sinks_counted",
    "sinks count",
    "before, new = int(count[row]), chunk - first - skip\n        skipped[row] += skip",
    "skipped[row], skip = skipped[row] + skip, 0\n"
    "        before, new = int(count[row]), chunk - first",
    "test_sinks_and_padding_do_not_count",
)
