"""Mutants of the coverage objective, its greedy oracle and the core's guarantees."""

import torch

import reference
from spec_tests.mutants.make import mutant


@mutant(
    "coverage",
    "what the kept tokens give is added up",
    killer="hubkv/test_coverage.py::test_coverage_is_the_sum_of_the_best_weights",
)
def coverage_is_modular(weights, kept):
    """Forget the maximum."""
    return (weights * kept[..., None, :]).sum((-2, -1))


@mutant(
    "coverage",
    "the worst kept token counts",
    killer="hubkv/test_coverage.py::test_a_larger_set_is_never_worth_less",
)
def coverage_by_the_worst(weights, kept):
    """Take the minimum over the kept tokens."""
    worst = weights.masked_fill(~kept[..., None, :], torch.inf).amin(-1)
    return worst.masked_fill(worst == torch.inf, 0).sum(-1)


@mutant(
    "coverage",
    "utility is squared",
    killer="hubkv/test_coverage.py::test_returns_diminish_for_all_nested_sets",
)
def coverage_squared(weights, kept):
    """Let returns grow."""
    return reference.coverage(weights, kept) ** 2


@mutant(
    "coverage",
    "places are averaged",
    killer="hubkv/test_coverage.py::test_one_token_is_worth_its_score",
)
def coverage_on_average(weights, kept):
    """Divide by the number of places."""
    return reference.coverage(weights, kept) / weights.shape[-1]


@mutant(
    "coverage_weights",
    "normalised over the tokens that cover a place",
    killer="hubkv/test_coverage.py::test_a_column_sums_to_its_score",
)
def weights_by_row(scores, kernel):
    """Divide by Z_i."""
    return scores[..., None, :] * reference.coverage_weights(torch.ones_like(scores), kernel).mT


@mutant(
    "coverage_weights",
    "the interior's Z everywhere",
    killer="hubkv/test_kernels.py::test_a_window_at_the_end_spreads_over_fewer_places",
)
def weights_forget_the_ends(scores, kernel):
    """Divide by the sum of an untruncated kernel."""
    places = torch.arange(scores.shape[-1])
    spread = kernel[(places[:, None] - places).abs()]
    return scores[..., None, :] * spread / (2 * kernel.sum() - kernel[:1].sum())


@mutant(
    "window_kernel",
    "the radius is the whole width",
    killer="hubkv/test_coverage.py::test_a_kernel_like_the_hub_window_overlaps_by_four_and_three_fifths",
)
def window_of_half_the_width(tokens, radius, dtype=torch.float32):
    """Halve the window."""
    return reference.window_kernel(tokens, radius // 2, dtype)


@mutant(
    "gaussian_kernel",
    "decays with the distance, not its square",
    killer="hubkv/test_kernels.py::test_a_gaussian_starts_at_one_and_falls",
)
def gaussian_is_exponential(tokens, deviation, dtype=torch.float32):
    """Forget the square."""
    return torch.exp(-torch.arange(tokens, dtype=torch.float64) / deviation).to(dtype)


@mutant(
    "marginal_gain",
    "places that are covered better are subtracted",
    killer="hubkv/test_coverage.py::test_a_marginal_gain_is_what_the_utility_gains",
)
def gain_without_the_floor(weights, kept):
    """Forget max(0, .)."""
    covered = weights.masked_fill(~kept[..., None, :], 0).amax(-1, keepdim=True)
    return (weights - covered).sum(-2)


@mutant(
    "marginal_gain",
    "the singleton utility, whatever is kept",
    killer="hubkv/test_coverage.py::test_beside_a_hub_the_gain_is_what_the_overlap_leaves",
)
def gain_is_the_score(weights, kept):
    """Forget the kept set."""
    return weights.sum(-2)


@mutant(
    "marginal_gain",
    "all gains are half of the score, as if the overlap were one half",
    killer="hubkv/test_coverage.py::test_the_discounted_score_is_within_eta_of_the_gain",
)
def gain_is_the_discount(weights, kept):
    """Assume what the sandwich is about."""
    return torch.where(kept, 0.0, weights.sum(-2) / 2)


@mutant(
    "marginal_gain",
    "what a token scores above the kept ones, wherever it covers",
    killer="hubkv/test_coverage.py"
    "::test_no_gain_beside_a_hub_is_below_the_discounted_score_by_more_than_eta",
)
def gain_over_the_best_score(weights, kept):
    """Compare totals, not places."""
    scores = weights.sum(-2)
    best = scores.masked_fill(~kept, 0).amax(-1, keepdim=True)
    return (scores - best).clamp(min=0)


@mutant(
    "marginal_gain",
    "the token kept last counts alone",
    killer="hubkv/test_coverage.py"
    "::test_a_gain_beside_a_hub_and_others_is_at_most_that_beside_the_hub",
)
def gain_over_the_last(weights, kept):
    """Forget the others."""
    last = kept & (kept.flip(-1).cumsum(-1).flip(-1) == 1)
    return reference.marginal_gain(weights, last)


@mutant(
    "overlap",
    "a share of the hub's score",
    killer="hubkv/test_coverage.py::test_beside_a_hub_the_gain_is_what_the_overlap_leaves",
)
def overlap_of_the_hub(weights, hub):
    """Divide by the wrong score."""
    scores = weights.sum(-2)
    shares = reference.overlap(weights, hub) * scores / scores[..., hub, None]
    return shares.nan_to_num(0)


@mutant(
    "greedy",
    "each pick gains the least",
    killer="hubkv/test_greedy.py::test_greedy_reaches_its_share_of_the_optimum",
)
def greedy_for_the_least(weights, keep):
    """Reverse the order of a whole run."""
    return reference.greedy(weights, weights.shape[-1]).flip(-1)[..., :keep]


@mutant(
    "greedy",
    "Top-K by score",
    killer="hubkv/test_greedy.py::test_each_pick_gains_the_most_and_ties_go_to_the_lowest_index",
)
def greedy_ignores_overlap(weights, keep):
    """Rank once."""
    return weights.sum(-2).argsort(dim=-1, descending=True, stable=True)[..., :keep]


@mutant(
    "lazy_greedy",
    "stale gains are never renewed",
    killer="hubkv/test_greedy.py::test_lazy_greedy_picks_what_greedy_picks",
)
def lazy_and_stale(weights, keep):
    """Take the queue as it was."""
    return weights.sum(-2).argsort(dim=-1, descending=True, stable=True)[..., :keep]


@mutant(
    "smd",
    "the strongest of a window is the one discounted",
    killer="hubkv/test_greedy.py::test_the_core_reaches_one_budgetth_of_the_optimum",
)
def discount_the_hubs(scores, radius=2, gamma=0.5, protected=None):
    """Invert the mask."""
    return reference.discount(scores, ~reference.hub_mask(scores, radius, protected), gamma)


@mutant(
    "window_kernel",
    "no window reaches further than the hubs' own",
    killer="hubkv/test_greedy.py"
    "::test_a_radius_of_half_the_plateau_leaves_the_core_order_one_budgetth",
)
def window_of_the_hubs(tokens, radius, dtype=torch.float32):
    """Stop at 2."""
    return reference.window_kernel(tokens, min(radius, 2), dtype)


@mutant(
    "smd",
    "the discount is applied twice",
    killer="hubkv/test_greedy.py::test_on_a_redundant_cluster_the_core_keeps_the_whole_plateau",
)
def discount_twice(scores, radius=2, gamma=0.5, protected=None):
    """Suppress harder than the method does."""
    return reference.smd(scores, radius, gamma * gamma, protected)
