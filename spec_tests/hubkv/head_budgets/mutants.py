"""Mutants of the head budgets."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hubkv/head_budgets")
mutant("""
test_budgets_add_up_in_every_layer
  rounded_down: budgets are rounded down
  - by_remainder[: total - sum(whole)]
  + by_remainder[:0]
test_a_head_of_nothing_but_protected_tokens_keeps_them_all
  protected_forgotten: protected tokens are ignored
  -     if protected is None:
  +     if True:
test_waterfill_counts_the_winners_of_a_common_ranking
  ranked_raw: raw scores of all heads are ranked together
  - enumerate(_shares(content).sort(
  + enumerate(content.sort(
test_uniform_scores_share_equally
  ties_to_the_first_head: all ties go to the first heads
  - (-share, rank, head)
  + (-share, 0, head)
test_entropy_counts_the_tokens_a_head_spreads_over
  logarithmic_weights: the weight is the entropy, not its exponential
  - .sum().exp().item()
  + .sum().item()
test_a_more_selective_or_more_evenly_spread_head_gets_no_less
  rules_exchanged: the head with the flattest scores gets the largest budget
  -         "selectivity": _fractions(spread),
  -         "entropy": _fractions(width),
  +         "selectivity": _fractions(width),
  +         "entropy": _fractions(spread),
vector:budgets-hold-protected-tokens
  protected_beyond_the_budgets: protected tokens are added to the budget
  - total = keep * len(heads)
  + total = keep * len(heads) + sum(lowest)
""")
