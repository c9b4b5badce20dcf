"""Mutants of sparse rows."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hex/csr")
mutant("""
test_rows_hold_their_columns_in_order
  skip_empty_rows: rows without entries are skipped
  - for row in mask.tolist():
  + for row in filter(any, mask.tolist()):
""")
