"""Mutants of PyramidKV's budgets."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("scorers/pyramidkv")
mutant("""
test_every_row_has_the_budgets_of_its_own_length
  never_exact: the overspending is left in the exact budgets
  - if exact else _stairs
  + if False else _stairs
  unbounded: the first layers get more than there is
  - room = max(0, int(lengths[row]) - window)
  + room = 10**9
  as_the_longest: rows share the budgets of the longest
        lengths = torch.as_tensor(tokens)
  +     lengths = lengths.amax().expand(lengths.shape) if lengths.numel() else lengths
  always_a_pyramid: a prompt little longer than the budget has a pyramid
  - if layers == 1 or int(lengths[row]) < 2 * (keep - window):
  + if layers == 1:
test_32_layers_overspend_by_the_known_share
  always_exact: the steps are exact where they are rounded down
  - if exact else _stairs
  + if True else _stairs
vector:the-least-budget-is-a-whole-quotient
  cut_short: the least budget is a binary fraction cut short
  - least = mean // beta
  + least = int(mean * (1 / beta))
""")
