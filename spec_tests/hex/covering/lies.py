"""Lies about coverings."""

from spec_tests.mutants.make import lies

lie = lies("hex/covering")
lie("""
test_an_edge_follows_its_permutation
  parallel_copies: every edge is replaced by the same permutation: copies of the base side by side
  - sheets * channel + j]
  + sheets * channel + i]
test_an_accepted_covering_is_ramanujan
  copies_are_a_covering: the base is copied, which falls apart
  -         if new_singular_value(mask, permutations) <= bound * ROUNDING:
  +         permutations = permutations.sort(1).values
  +         if permutations.numel():
""")
