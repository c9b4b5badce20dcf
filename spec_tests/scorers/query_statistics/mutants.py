"""Mutants of query statistics."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("scorers/query_statistics")
mutant("""
test_a_prompt_in_chunks_has_the_moments_of_one_piece
  sinks_of_every_chunk: the first queries of every chunk are skipped as sinks
  - max(0, sinks - int(skipped[row]))
  + sinks
test_moments_agree_with_scalar_loops
  sinks_counted: sinks are counted
  -         before, new = int(count[row]), chunk - first - skip
  -         skipped[row] += skip
  +         skipped[row], skip = skipped[row] + skip, 0
  +         before, new = int(count[row]), chunk - first
  unbiased_covariance: the covariance divides by n - 1
  - (these - centre) / new
  + (these - centre) / max(1, new - 1)
vector:a-chunk-continues-the-past
  means_forgotten: a merged covariance ignores the distance of the two means
  - torch.outer(gap, gap)
  + torch.outer(0 * gap, gap)
""")
