"""Lies about sub-tiles."""

from spec_tests.mutants.make import lies

lie = lies("hex/subtile")
lie("""
vector:a-code-unfolds
  affine_permutation: the carry of the multiplication is not folded back: no shift
  - (y ^ y >> shift)
  + y
""")
