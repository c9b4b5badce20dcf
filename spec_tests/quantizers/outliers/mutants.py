"""Mutants of outliers."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("quantizers/outliers")
mutant("""
test_outliers_are_those_found_one_row_at_a_time
  outliers_by_half_precision: rows are ranked in bfloat16
  - order = x.sort(
  + order = x.bfloat16().sort(
  by_magnitude: outliers are the largest absolute values
  -     order = x.sort(dim=-1, descending=True, stable=True).indices
  +     order = x.abs().sort(dim=-1, descending=True, stable=True).indices
  +     order = torch.cat([order[..., ::2], order[..., 1::2].flip(-1)], -1)
  overlapping_ends: both ends are chosen independently, so that they may overlap
  -     order = x.sort(dim=-1, descending=True, stable=True).indices
  +     half = x.shape[-1] // 2
  +     order = x.sort(dim=-1, descending=True, stable=True).indices[..., :half]
  +     least = x.sort(dim=-1, stable=True).indices[..., : x.shape[-1] - half]
  +     order = torch.cat([order, least.flip(-1)], -1)
  nearest_count: the count of an end is rounded to the nearest
  - return Fraction(str(ratio)) * members // 2
  + return round(Fraction(str(ratio)) * members / 2)
  binary_share_of_outliers: a share is read as a binary number, not as a decimal
  - Fraction(str(ratio)) * members
  + int(ratio * members)
""")
