"""Mutants of the gate."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hubkv/ratio_gate")
mutant("""
test_the_gate_mixes_by_the_ratios_power
  linear_gate: the ratio itself mixes, not its power
  - strength = ratio**power
  + strength = ratio
  swapped_gate: the two scores are exchanged in the mixture
  - (1 - strength) * widen(scores) + strength * widen(corrected)
  + strength * widen(scores) + (1 - strength) * widen(corrected)
test_the_bound_holds_for_any_weight
  additive_gate: the correction is added, not mixed
  - (1 - strength) * widen(scores) + strength * widen(corrected)
  + widen(scores) + strength * widen(corrected)
  half_more: the correction counts one and a half times
  - strength * widen(corrected)
  + 1.5 * strength * widen(corrected)
test_the_ranking_is_stable_for_any_lead
  overdone_gate: the gate's strength is tripled, so that it can exceed 1
  - strength = ratio**power
  + strength = 3 * ratio**power
  a_strong_gate: the gate's strength is doubled
  - strength = ratio**power
  + strength = min(1.0, 2 * ratio**power)
test_the_lead_that_stability_asks_for_is_the_least
  a_weak_gate: the gate's strength is halved
  - strength = ratio**power
  + strength = ratio**power / 2
test_the_mixture_is_rounded_once
  hasty_gate: each step is rounded to the dtype of the scores
  - (1 - strength) * widen(scores) + strength * widen(corrected)
  + (1 - strength) * scores + strength * corrected
""")
