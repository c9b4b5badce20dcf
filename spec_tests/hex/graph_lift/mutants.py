"""Mutants of coverings."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hex/graph_lift")
mutant("""
test_an_edge_follows_its_permutation
  parallel_copies: every edge has the same permutation: the covering consists of copies of the base
  - sheets * channel + j]
  + sheets * channel + i]
test_a_permutation_that_no_edge_is_there_for_is_refused
  empty_masks_unread: a mask without tokens or channels accepts any permutations
  - if may_read_values(mask) or not mask.numel():
  + if may_read_values(mask):
test_no_seed_gives_a_covering_over_the_bound
  first_covering: the first covering is accepted, whatever its new values
  - if new_singular_value(mask, permutations) <= bound * ROUNDING:
  + if bound:
test_a_seed_names_a_covering
  seedless_covering: the first covering does not depend on the seed
  - RandomState([seed, draw, 3])
  + RandomState([0, draw, 3])
test_an_accepted_covering_is_ramanujan
  copies_are_a_covering: the covering consists of copies of the base, so it is disconnected
  -         if new_singular_value(mask, permutations) <= bound * ROUNDING:
  +         permutations = permutations.sort(1).values
  +         if permutations.numel():
""")
