"""Mutants of the gate."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hubkv/ratio_gate")
mutant("""
test_the_gate_mixes_by_the_ratios_power
  linear_gate: the ratio itself mixes, not its power
  - strength = ratio**power
  + strength = ratio
  swapped_gate: mixed the wrong way round
  - (1 - strength) * widen(scores) + strength * widen(corrected)
  + strength * widen(scores) + (1 - strength) * widen(corrected)
test_the_bound_holds_for_any_weight
  additive_gate: the correction is added, not mixed in
  - (1 - strength) * widen(scores) + strength * widen(corrected)
  + widen(scores) + strength * widen(corrected)
  half_more: half of the correction comes on top
  - strength * widen(corrected)
  + 1.5 * strength * widen(corrected)
test_the_ranking_is_stable_for_any_lead
  overdone_gate: a strong correction turns the ranking round
  - strength = ratio**power
  + strength = 3 * ratio**power
  a_strong_gate: the correction outweighs what it corrects
  - strength = ratio**power
  + strength = min(1.0, 2 * ratio**power)
test_the_lead_that_stability_asks_for_is_the_least
  a_weak_gate: half of the correction
  - strength = ratio**power
  + strength = ratio**power / 2
test_the_mixture_is_rounded_once
  hasty_gate: rounded at every step
  - (1 - strength) * widen(scores) + strength * widen(corrected)
  + (1 - strength) * scores + strength * corrected
""")
