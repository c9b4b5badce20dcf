"""Mutants of the greedy selection, and of the discount that its bounds are about."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hubkv/greedy")
mutant("""
test_greedy_reaches_its_share_of_the_optimum
  greedy_for_the_least: each pick has the smallest gain
  - gains.index(max(gains))
  + gains.index(min(gains))
test_each_pick_gains_the_most_and_ties_go_to_the_lowest_index
  greedy_ignores_overlap: picks by score alone, as Top-K
  - [_gain(row, covered, k) for k in left]
  + [_gain(row, 0 * covered, k) for k in left]
test_lazy_greedy_picks_what_greedy_picks
  lazy_and_stale: old gains are never recomputed
  - while queue and (
  + while False and (
""")

mutant = register_mutants("hubkv/discount")
mutant("""
hubkv/greedy/test_laws.py::test_the_core_reaches_one_budgetth_of_the_optimum
  discount_the_hubs: hubs are discounted instead of the other tokens
  - torch.where(hubs, scores, gamma * scores)
  + torch.where(hubs, gamma * scores, scores)
  second_best_as_hub: the second best of its window is the hub
  - start + window.argmax(-1) == i
  + start + window.argsort(dim=-1, descending=True, stable=True)[..., :2][..., -1] == i
  least_as_hub: the least of its window is the hub
  - start + window.argmax(-1) == i
  + start + window.argmin(-1) == i
hubkv/greedy/test_laws.py::test_the_core_keeps_the_whole_plateau_just_if_the_hubs_are_below_gamma
  undiscounted: nothing is discounted
  - torch.where(hubs, scores, gamma * scores)
  + scores.clone()
  discount_twice: the discount is applied twice
  - hub_mask(scores, radius, protected), gamma)
  + hub_mask(scores, radius, protected), gamma * gamma)
""")
