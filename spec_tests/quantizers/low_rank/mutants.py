"""Mutants of the low-rank correction."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("quantizers/low_rank")
mutant("""
test_factors_are_a_basis_and_the_shadow_on_it
  without_orthonormal_basis: the last basis is not orthonormal
  - = orthonormal(matrix @ orthonormal(columns))
  + = matrix @ orthonormal(columns)
test_directions_much_stronger_than_the_rest_are_found
  one_pass: the block is multiplied by the matrix only once
  - range(rounds - 1)
  + range(0)
test_a_higher_rank_never_leaves_more
  another_block_for_each_rank: blocks of different ranks share no columns
  - RandomState([seed, 4])
  + RandomState([1000 * rank + seed, 4])
test_the_seed_alone_decides
  unseeded: the block is drawn from the global generator
  - RandomState([seed, 4])
  + RandomState([int(torch.randint(2**31, ())), 4])
  one_seed_for_all: the seed is ignored
  - RandomState([seed, 4])
  + RandomState([0, 4])
test_a_direction_is_on_the_side_of_the_column_it_came_from
  signs_of_the_decomposition: the signs of columns are not normalised
  - torch.where(turned, -basis, basis)
  + basis
vector:two-columns-one-after-the-other
  block_row_by_row: the block is drawn row by row
  - random_sample((rank, columns)) - 1).T
  + random_sample((columns, rank)) - 1)
""")
