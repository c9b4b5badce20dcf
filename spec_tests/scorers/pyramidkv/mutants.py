"""Mutants of PyramidKV's budgets."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("scorers/pyramidkv")
mutant("""
test_every_row_has_the_budgets_of_its_own_length
  never_exact: exact budgets exceed the total as the rounded ones do
  - if exact else _stairs
  + if False else _stairs
  unbounded: the first layers may get more places than there are tokens
  - room = max(0, int(lengths[row]) - window)
  + room = 10**9
  as_the_longest: all rows have the budgets of the longest row
        lengths = torch.as_tensor(tokens)
  +     lengths = lengths.amax().expand(lengths.shape) if lengths.numel() else lengths
  always_a_pyramid: a prompt slightly longer than the budget also has decreasing budgets
  - if layers == 1 or int(lengths[row]) < 2 * (keep - window):
  + if layers == 1:
test_32_layers_overspend_by_the_known_share
  always_exact: rounded budgets are the exact ones
  - if exact else _stairs
  + if True else _stairs
vector:the-least-budget-is-a-whole-quotient
  cut_short: the least budget is computed in binary and truncated
  - least = mean // beta
  + least = int(mean * (1 / beta))
""")
