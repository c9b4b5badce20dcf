"""Mutants of the comparison of settings."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hex/sensitivity")
mutant("""
test_keeping_everything_costs_no_error_and_more_bytes
  no_error_at_all: decoded queries attend to the exact cache
  - torch.cat(deviations, -1).mean()
  + torch.cat(deviations, -1).mean() * 0
""")
