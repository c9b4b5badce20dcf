"""Mutants of CAKE's budgets."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("scorers/cake_budgets")
mutant("""
test_budgets_hold_the_window_and_no_more_than_there_is
  cake_unclipped: a layer may get more places than the prompt has tokens
  - int(lengths[row])
  + 2**20
            shares = [max
vector:what-truncation-leaves-goes-to-the-first
  cake_last_first: the remainder goes to the last layers
  - enumerate(below)
  + enumerate(below[::-1])
vector:what-is-gone-does-not-come-back
  cake_resurrected: the last step ignores earlier evictions
  - shares = [*shares, max(0, length - window)]
  + shares = [*(shares if step + 1 < layers else step * [length]), max(0, length - window)]
vector:what-a-deal-overfills-is-lost
  cake_nothing_lost: places beyond a layer's limit go to other layers
  - _adjusted
  + _shared
                shares = divided(wishes, 
vector:the-authors-cascade-ends-a-place-short
  cake_cascade_spends_all: places that a layer lost go to other layers
  - _adjusted
  + _shared
                    shares = divided(wishes[
vector:a-thousandth-of-a-preference-counts
  cake_coarse_parts: preferences are counted in 64 parts
  - [*map(Fraction, wishes)]
  + [round(64 * wish / max(wishes)) for wish in wishes]
test_budgets_of_whole_preferences_agree_with_counting
  cake_always_evicts: evicts even if the prompt exceeds the budget by at most a window
  -         if exact or length > keep + window:
  +         if True:
                divided
  cake_remainder_lost: places left over by truncation and clipping are lost
  - while left:
  + while left < 0:
test_the_cascade_of_whole_preferences_agrees_with_counting
  cake_clairvoyant: a layer gets its final share in the first step
  - divided(wishes[: step + 1], (keep - window) * layers, shares)
  + divided(wishes, (keep - window) * layers, shares[-1:] * layers)[: step + 1]
""")
