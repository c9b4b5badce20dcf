"""Lies about CAKE's budgets."""

import torch

import reference
from spec_tests.mutants.make import mutant


def floors(preferences, keep, tokens, window):
    """Return the truncated and clipped shares alone."""
    lengths = torch.as_tensor(tokens).expand(preferences.shape[1:])
    wishes = preferences.double()
    share = wishes / wishes.sum(0).clamp(min=1e-300) * (keep - window) * len(preferences)
    beside = torch.minimum(share.floor().long(), (lengths - window).clamp(min=0))
    return beside + lengths.clamp(max=window)


@mutant(
    "cake_budgets",
    "what truncation and clipping leave over is lost",
    killer="scorers/cake_budgets/test_laws.py::test_exact_budgets_add_up_to_all_there_is",
)
def cake_remainder_lost(preferences, keep, tokens, window=32, exact=False):
    """Stop after clipping."""
    return floors(preferences, keep, tokens, window)


@mutant(
    "cake_budgets",
    "a layer may get more than there is",
    killer="scorers/cake_budgets/test_laws.py::test_budgets_hold_the_window_and_no_more_than_there_is",
)
def cake_unclipped(preferences, keep, tokens, window=32, exact=False):
    """Share out among layers of endless length."""
    return reference.cake_budgets(preferences, keep, 2**20, window, exact)


@mutant(
    "cake_budgets",
    "the remainder goes to the last layers",
    killer="test_vectors.py::test_vector[cake_budgets-what-truncation-leaves-goes-to-the-first]",
)
def cake_last_first(preferences, keep, tokens, window=32, exact=False):
    """Turn the layers around."""
    return reference.cake_budgets(preferences.flip(0), keep, tokens, window, exact).flip(0)


@mutant(
    "cake_cascade",
    "a layer gets its final share at once",
    killer="scorers/cake_budgets/test_laws.py::test_every_step_of_an_exact_cascade_shares_the_whole_budget",
)
def cake_clairvoyant(preferences, keep, tokens, window=32, exact=False):
    """Know all preferences before the layers have been seen."""
    final = reference.cake_budgets(preferences, keep, tokens, window, exact)
    cascade = final.expand(len(preferences), *final.shape).clone()
    for step in range(len(preferences)):
        cascade[step, step + 1 :] = 0
    return cascade


@mutant(
    "cake_cascade",
    "the last step shares out as if nothing had been evicted",
    killer="test_vectors.py::test_vector[cake_budgets-what-is-gone-does-not-come-back]",
)
def cake_resurrected(preferences, keep, tokens, window=32, exact=False):
    """End at the budgets that all layers together would get."""
    cascade = reference.cake_cascade(preferences, keep, tokens, window, exact)
    cascade[-1:] = reference.cake_budgets(preferences, keep, tokens, window, exact)
    return cascade


@mutant(
    "cake_budgets",
    "what a deal overfills is given on",
    killer="test_vectors.py::test_vector[cake_budgets-what-a-deal-overfills-is-lost]",
)
def cake_nothing_lost(preferences, keep, tokens, window=32, exact=False):
    """Deal until the budget is spent, unasked, where there is anything to evict."""
    lengths = torch.as_tensor(tokens).expand(preferences.shape[1:])
    spent = reference.cake_budgets(preferences, keep, tokens, window, True)
    evicted = (lengths > keep + window) | torch.tensor(exact)
    return torch.where(evicted, spent, lengths)


@mutant(
    "cake_budgets",
    "a prompt of a window more than the budget is evicted from",
    killer="scorers/cake_budgets/test_laws.py::test_a_prompt_of_a_window_more_than_the_budget_is_kept_whole",
)
def cake_always_evicts(preferences, keep, tokens, window=32, exact=False):
    """Spend the budget exactly where it says nothing is evicted."""
    lengths = torch.as_tensor(tokens).expand(preferences.shape[1:])
    exactly = reference.cake_budgets(preferences, keep, tokens, window, True)
    budgets = reference.cake_budgets(preferences, keep, tokens, window, exact)
    return torch.where(lengths > keep + window, budgets, exactly)


@mutant(
    "cake_cascade",
    "what a layer cannot take back goes to another",
    killer="test_vectors.py::test_vector[cake_budgets-the-authors-cascade-ends-a-place-short]",
)
def cake_cascade_spends_all(preferences, keep, tokens, window=32, exact=False):
    """Cascade as though places could not be lost."""
    return reference.cake_cascade(preferences, keep, tokens, window, True)


@mutant(
    "cake_budgets",
    "preferences are counted in 64 parts",
    killer="test_vectors.py::test_vector[cake_budgets-a-thousandth-of-a-preference-counts]",
)
def cake_coarse_parts(preferences, keep, tokens, window=32, exact=False):
    """Round preferences to 64ths of the power of two above the largest."""
    exponent = torch.frexp(preferences.amax(0)).exponent if len(preferences) else 0
    parts = (preferences.double() * 2.0 ** (6 - exponent)).round()
    return reference.cake_budgets(parts, keep, tokens, window, exact)
