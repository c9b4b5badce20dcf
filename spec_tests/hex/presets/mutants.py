"""Mutants of the paper's settings."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hex/presets")
mutant("""
test_table_4_has_ten_rows_of_settings
  percent_forgotten: the heavy share is 2, not 2 %
  - return PRESETS[name]
  + return PRESETS[name]._replace(heavy=min(1.0, 100 * PRESETS[name].heavy))
""")
