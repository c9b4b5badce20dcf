"""Mutants of CAKE's budgets."""

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
    killer="scorers/test_cake_budgets.py::test_budgets_add_up_to_all_there_is",
)
def cake_remainder_lost(preferences, keep, tokens, window=32):
    """Stop after clipping."""
    return floors(preferences, keep, tokens, window)


@mutant(
    "cake_budgets",
    "a layer may get more than there is",
    killer="scorers/test_cake_budgets.py::test_budgets_hold_the_window_and_no_more_than_there_is",
)
def cake_unclipped(preferences, keep, tokens, window=32):
    """Share out among layers of endless length."""
    return reference.cake_budgets(preferences, keep, 2**20, window)


@mutant(
    "cake_budgets",
    "the remainder goes to the last layers",
    killer="test_vectors.py::test_vector[cake-what-truncation-leaves-goes-to-the-first]",
)
def cake_last_first(preferences, keep, tokens, window=32):
    """Turn the layers around."""
    return reference.cake_budgets(preferences.flip(0), keep, tokens, window).flip(0)


@mutant(
    "cake_cascade",
    "a layer gets its final share at once",
    killer="scorers/test_cake_budgets.py::test_every_step_of_the_cascade_shares_the_whole_budget",
)
def cake_clairvoyant(preferences, keep, tokens, window=32):
    """Know all preferences before the layers have been seen."""
    final = reference.cake_budgets(preferences, keep, tokens, window)
    cascade = final.expand(len(preferences), *final.shape).clone()
    for step in range(len(preferences)):
        cascade[step, step + 1 :] = 0
    return cascade


@mutant(
    "cake_cascade",
    "the last step shares out as if nothing had been evicted",
    killer="test_vectors.py::test_vector[cake-what-is-gone-does-not-come-back]",
)
def cake_resurrected(preferences, keep, tokens, window=32):
    """End at the budgets that all layers together would get."""
    cascade = reference.cake_cascade(preferences, keep, tokens, window)
    cascade[-1:] = reference.cake_budgets(preferences, keep, tokens, window)
    return cascade
