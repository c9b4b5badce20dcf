"""Mutants of the refinement without a gate."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hubkv/ungated_refine")
mutant("""
test_the_ungated_variant_is_refinement_at_ratio_one
  gated_all_the_same: the gate is still applied
  - return corrected.to(scores.dtype)
  + return ((widen(scores) + corrected) / 2).to(scores.dtype)
vector:three-steps-without-a-gate
  discounted_only: head weights are left out
  - calibrate(smd(content, radius, gamma, protected), weights)
  + smd(content, radius, gamma, protected)
""")
