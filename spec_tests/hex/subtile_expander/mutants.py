"""Mutants of sub-tiles."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hex/subtile_expander")
mutant("""
test_a_seed_and_a_draw_name_codes
  same_codes_again: the number of the draw is ignored
  - RandomState([seed, draw, 2])
  + RandomState([seed, 0, 2])
test_no_seed_gives_codes_of_a_mask_over_the_bound
  first_codes: the first codes are accepted, whatever their mask
  - if is_ramanujan(subtile_mask(subtile_permutations(codes, width), subtile)):
  + if True:
vector:a-code-unfolds
  affine_permutation: the xor with the shifted number is left out
  - (y ^ y >> shift)
  + y
""")
