"""Mutants of the comparison of settings."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hex/sensitivity")
mutant("""
test_a_row_is_the_mean_deviation_of_the_cache_as_it_stood
  no_error_at_all: decoded queries attend to the exact cache
  - torch.cat(deviations, -1).mean()
  + torch.cat(deviations, -1).mean() * 0
""")
