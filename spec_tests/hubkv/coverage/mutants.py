"""Mutants of the coverage objective."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hubkv/coverage")
mutant("""
test_coverage_is_the_sum_of_the_best_weights
  coverage_is_modular: the weights of the kept tokens are added instead of their maximum
  - _covered(widen(weights), kept).sum(-1)
  + (weights * kept[..., None, :]).sum((-2, -1))
test_a_larger_set_is_never_worth_less
  coverage_by_the_worst: the smallest weight of a kept token counts, not the largest
  - _covered(widen(weights), kept).sum(-1)
  + weights.masked_fill(~kept[..., None, :], torch.inf).amin(-1).nan_to_num(posinf=0.0).sum(-1)
test_returns_diminish_for_all_nested_sets
  coverage_squared: utility is squared
  - _covered(widen(weights), kept).sum(-1)
  + _covered(widen(weights), kept).sum(-1) ** 2
test_one_token_is_worth_its_score
  coverage_on_average: the utility is a mean over places, not a sum
  - _covered(widen(weights), kept).sum(-1)
  + _covered(widen(weights), kept).mean(-1)
test_a_column_sums_to_its_score
  kernel_as_it_comes: the kernel is not normalised where its sum is at most 1
  - spread / spread.sum()
  + spread / spread.sum().clamp(min=1)
  weights_by_row: weights are normalised over the tokens that cover a place
  - spread / spread.sum()
  + kernel[distances] / kernel[(torch.arange(tokens)[:, None] - torch.arange(tokens)).abs()].sum(1)
hubkv/coverage_kernels/test_laws.py::test_a_window_at_the_end_spreads_over_fewer_places
  weights_forget_the_ends: all columns have the normaliser of the interior
  - spread / spread.sum()
  + kernel[distances] / (2 * kernel.sum() - kernel[0])
test_a_marginal_gain_is_what_the_utility_gains
  gain_without_the_floor: places that are already covered better count negatively
  - torch.clamp(weights[..., :, k] - covered, min=0).sum(-1)
  + (weights[..., :, k] - covered).sum(-1)
test_beside_a_hub_the_gain_is_what_the_overlap_leaves
  overlap_of_sums: the overlap is all that the hub covers, divided by all that the token covers
  - torch.minimum(weights[..., :, i], weights[..., :, hub]).sum(-1)
  + weights[..., :, hub].sum(-1)
  gain_is_the_score: the gain is the utility of the token alone
  - torch.clamp(weights[..., :, k] - covered, min=0).sum(-1)
  + weights[..., :, k].sum(-1)
  overlap_of_the_hub: the overlap is a share of the hub's score
  - shared / score,
  + shared / weights[..., :, hub].sum(-1),
test_the_discounted_score_is_within_eta_of_the_gain
  gain_is_the_discount: all gains are half of the score
  - torch.clamp(weights[..., :, k] - covered, min=0).sum(-1)
  + torch.where(kept[..., k], 0.0, weights[..., :, k].sum(-1) / 2)
test_no_gain_beside_a_hub_is_below_the_discounted_score_by_more_than_eta
  gain_over_the_best_score: the gain is the score above the best kept one, whatever they cover
  - torch.clamp(weights[..., :, k] - covered, min=0).sum(-1)
  + (weights[..., :, k].sum(-1) - (weights.sum(-2) * kept).amax(-1)).clamp(min=0)
test_a_gain_beside_a_hub_and_others_is_at_most_that_beside_the_hub
  gain_over_the_last: only the kept token at the last position counts
  - covered = _covered(weights, kept)
  + covered = _covered(weights, kept & (kept.flip(-1).cumsum(-1).flip(-1) == 1))
""")
