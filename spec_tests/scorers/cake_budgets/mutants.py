"""Mutants of CAKE's budgets."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("scorers/cake_budgets")
mutant("""
test_exact_budgets_add_up_to_all_there_is
  cake_remainder_lost: what truncation and clipping leave over is lost
  - while left:
  + while left < 0:
test_budgets_hold_the_window_and_no_more_than_there_is
  cake_unclipped: a layer may get more than there is
  - int(lengths[row])
  + 2**20
            shares = [max
vector:what-truncation-leaves-goes-to-the-first
  cake_last_first: the remainder goes to the last layers
  - enumerate(below)
  + enumerate(below[::-1])
test_every_step_of_an_exact_cascade_shares_the_whole_budget
  cake_clairvoyant: a layer gets its final share at once
  - divided(wishes[: step + 1], (keep - window) * layers, shares)
  + divided(wishes, (keep - window) * layers, shares[-1:] * layers)[: step + 1]
vector:what-is-gone-does-not-come-back
  cake_resurrected: the last step shares out as if nothing had been evicted
  - shares = [*shares, max(0, length - window)]
  + shares = [*(shares if step + 1 < layers else step * [length]), max(0, length - window)]
vector:what-a-deal-overfills-is-lost
  cake_nothing_lost: what a deal overfills is given on
  - _adjusted
  + _shared
                shares = divided(wishes, 
test_a_prompt_of_a_window_more_than_the_budget_is_kept_whole
  cake_always_evicts: a prompt of a window more than the budget is evicted from
  -         if exact or length > keep + window:
  +         if True:
                divided
vector:the-authors-cascade-ends-a-place-short
  cake_cascade_spends_all: what a layer cannot take back goes to another
  - _adjusted
  + _shared
                    shares = divided(wishes[
vector:a-thousandth-of-a-preference-counts
  cake_coarse_parts: preferences are counted in 64 parts
  - [*map(Fraction, wishes)]
  + [round(64 * wish / max(wishes)) for wish in wishes]
""")
