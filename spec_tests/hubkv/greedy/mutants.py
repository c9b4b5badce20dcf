"""Mutants of the greedy oracle, and about the core's guarantees."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hubkv/greedy")
mutant("""
test_greedy_reaches_its_share_of_the_optimum
  greedy_for_the_least: each pick gains the least
  - gains.index(max(gains))
  + gains.index(min(gains))
test_each_pick_gains_the_most_and_ties_go_to_the_lowest_index
  greedy_ignores_overlap: Top-K by score
  - [_gain(row, covered, k) for k in left]
  + [_gain(row, 0 * covered, k) for k in left]
test_lazy_greedy_picks_what_greedy_picks
  lazy_and_stale: stale gains are never renewed
  - while queue and (
  + while False and (
""")

mutant = register_mutants("hubkv/discount")
mutant("""
hubkv/greedy/test_laws.py::test_the_core_reaches_one_budgetth_of_the_optimum
  discount_the_hubs: the strongest of a window is the one discounted
  - torch.where(hubs, scores, gamma * scores)
  + torch.where(hubs, gamma * scores, scores)
hubkv/greedy/test_laws.py::test_on_a_redundant_cluster_the_core_keeps_the_whole_plateau
  discount_twice: the discount is applied twice
  - hub_mask(scores, radius, protected), gamma)
  + hub_mask(scores, radius, protected), gamma * gamma)
""")
