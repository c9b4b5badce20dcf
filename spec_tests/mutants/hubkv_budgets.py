"""Mutants of HubKV's ungated variant and head budgets."""

import torch

import reference
from spec_tests.mutants.make import mutant

BUDGETS, VECTOR = "hubkv/test_budgets.py::", "test_vectors.py::test_vector"


@mutant(
    "ungated_refine",
    "gated all the same",
    killer=BUDGETS + "test_the_ungated_variant_is_refinement_at_ratio_one",
)
def gated_all_the_same(scores, *rest, **named):
    """Mix in half of the raw scores."""
    return (scores + reference.ungated_refine(scores, *rest, **named)) / 2


@mutant(
    "ungated_refine",
    "no head weights",
    killer=VECTOR + "[hubkv-three-steps-without-a-gate]",
)
def discounted_only(scores, protected=None, radius=2, gamma=0.5, *rest, **named):
    """Stop after the discount."""
    out = reference.smd(scores, radius, gamma, protected)
    return out if protected is None else out.masked_fill(protected, 1)


def weights(scores, rule):
    """Return the weights of two of the rules, protected tokens counted in."""
    shares = scores.double() / scores.double().sum(-1, keepdim=True).clamp(min=1e-30)
    entropy = torch.special.entr(shares).sum(-1)
    return {"entropy": entropy.exp(), "selectivity": reference.selectivity(scores.double())}[rule]


@mutant(
    "head_budgets",
    "budgets are rounded down",
    killer=BUDGETS + "test_budgets_add_up_in_every_layer",
)
def rounded_down(scores, keep, rule, protected=None, epsilon=1e-6):
    """Drop the remainders."""
    if rule in ("waterfill", "hybrid"):
        return reference.head_budgets(scores, keep, rule, protected, epsilon)
    shares = weights(scores, rule) + 1e-30
    total = keep * scores.shape[-2]
    return (shares / shares.sum(-1, keepdim=True) * total).long().clamp(max=scores.shape[-1])


@mutant(
    "head_budgets",
    "protected tokens come on top of the budget",
    killer=VECTOR + "[hubkv-budgets-hold-protected-tokens]",
)
def protected_on_top(scores, keep, rule, protected=None, epsilon=1e-6):
    """Divide the budget first, then make room."""
    budgets = reference.head_budgets(scores, keep, rule, None, epsilon)
    return budgets if protected is None else budgets.maximum(protected.sum(-1))


@mutant(
    "head_budgets",
    "protected tokens may lose their place",
    killer=BUDGETS + "test_a_head_of_nothing_but_protected_tokens_keeps_them_all",
)
def protected_forgotten(scores, keep, rule, protected=None, epsilon=1e-6):
    """Forget the mask."""
    return reference.head_budgets(scores, keep, rule, None, epsilon)


@mutant(
    "head_budgets",
    "raw scores of all heads are ranked together",
    killer=BUDGETS + "test_waterfill_counts_the_winners_of_a_common_ranking",
)
def ranked_raw(scores, keep, rule, protected=None, epsilon=1e-6):
    """Forget to normalise each head."""
    if rule != "waterfill" or protected is not None:
        return reference.head_budgets(scores, keep, rule, protected, epsilon)
    order = scores.flatten(-2).sort(-1, descending=True, stable=True).indices
    kept = torch.zeros_like(scores.flatten(-2), dtype=torch.bool)
    kept.scatter_(-1, order[..., : keep * scores.shape[-2]], True)
    return kept.reshape(scores.shape).sum(-1)


@mutant(
    "head_budgets",
    "all ties go to the first heads",
    killer=BUDGETS + "test_uniform_scores_share_equally",
)
def ties_to_the_first_head(scores, keep, rule, protected=None, epsilon=1e-6):
    """Rank by (score, head, position)."""
    if rule != "waterfill":
        return reference.head_budgets(scores, keep, rule, protected, epsilon)
    shares = scores.double() / scores.double().sum(-1, keepdim=True)
    return ranked_raw(shares, keep, rule, None, epsilon)


@mutant(
    "head_budgets",
    "the entropy itself is the weight",
    killer=BUDGETS + "test_entropy_counts_the_tokens_a_head_spreads_over",
)
def logarithmic_weights(scores, keep, rule, protected=None, epsilon=1e-6):
    """Leave out the exponential: 4, 3, 2, 1 for heads over 16, 8, 4, 2 tokens."""
    if rule != "entropy":
        return reference.head_budgets(scores, keep, rule, protected, epsilon)
    shares = weights(scores, rule).log()
    budgets = shares / shares.sum(-1, keepdim=True) * keep * scores.shape[-2]
    return budgets.round().long()


@mutant(
    "head_budgets",
    "the flattest head gets the most",
    killer=BUDGETS + "test_a_more_selective_head_gets_no_less",
)
def rules_exchanged(scores, keep, rule, protected=None, epsilon=1e-6):
    """Take one rule for the other."""
    other = "entropy" if rule == "selectivity" else "selectivity"
    return reference.head_budgets(scores, keep, other, protected, epsilon)
