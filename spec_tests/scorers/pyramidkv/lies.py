"""Lies about PyramidKV's budgets."""

import torch

import reference
from spec_tests.mutants.make import mutant


@mutant(
    "pyramidkv_budgets",
    "the overspending is left in the exact budgets",
    killer="scorers/pyramidkv/test_laws.py::test_exact_budgets_add_up_to_the_budget",
)
def never_exact(keep, layers, tokens, window=32, beta=20, exact=False):
    """Ignore the choice."""
    return reference.pyramidkv_budgets(keep, layers, tokens, window, beta)


@mutant(
    "pyramidkv_budgets",
    "the steps are exact where they are rounded down",
    killer="scorers/pyramidkv/test_laws.py::test_32_layers_overspend_by_the_known_share",
)
def always_exact(keep, layers, tokens, window=32, beta=20, exact=False):
    """Spend the budget and no more."""
    return reference.pyramidkv_budgets(keep, layers, tokens, window, beta, True)


@mutant(
    "pyramidkv_budgets",
    "the first layers get more than there is",
    killer="scorers/pyramidkv/test_laws.py::test_budgets_never_grow_from_layer_to_layer_nor_leave_their_bounds",
)
def unbounded(keep, layers, tokens, window=32, beta=20, exact=False):
    """Draw the line as for an endless prompt."""
    lengths = torch.as_tensor(tokens)
    endless = torch.full_like(lengths, 10**9)
    return reference.pyramidkv_budgets(keep, layers, endless, window, beta, exact)


@mutant(
    "pyramidkv_budgets",
    "rows share the budgets of the longest",
    killer="scorers/pyramidkv/test_laws.py::test_every_row_has_the_budgets_of_its_own_length",
)
def as_the_longest(keep, layers, tokens, window=32, beta=20, exact=False):
    """Take the length of the padded batch."""
    lengths = torch.as_tensor(tokens)
    longest = lengths.amax().expand(lengths.shape).clone() if lengths.numel() else lengths
    return reference.pyramidkv_budgets(keep, layers, longest, window, beta, exact)


@mutant(
    "pyramidkv_budgets",
    "the least budget is a binary fraction cut short",
    killer="test_vectors.py::test_vector[pyramidkv-the-least-budget-is-a-whole-quotient]",
)
def cut_short(keep, layers, tokens, window=32, beta=20, exact=False):
    """Multiply by the reciprocal and cut: 49 times 1/49 is below 1."""
    budgets = reference.pyramidkv_budgets(keep, layers, tokens, window, beta, exact)
    lost = (keep - window) // beta - int((keep - window) * (1 / beta))
    budgets[0] += lost
    return budgets


@mutant(
    "pyramidkv_budgets",
    "a prompt little longer than the budget has a pyramid",
    killer="scorers/pyramidkv/test_laws.py::"
    "test_a_prompt_below_twice_the_budget_beyond_the_window_has_no_pyramid",
)
def always_a_pyramid(keep, layers, tokens, window=32, beta=20, exact=False):
    """Draw the line from whatever there is."""
    if exact:
        return reference.pyramidkv_budgets(keep, layers, tokens, window, beta, exact)
    lengths = torch.as_tensor(tokens)
    room = (lengths - window).clamp(min=0)
    mean = room.clamp(max=keep - window)
    most = torch.minimum(2 * mean - mean // beta, room) if layers > 1 else mean
    layer = torch.arange(layers).view(-1, *[1] * lengths.ndim)
    share = most - layer * (2 * (most - mean) // max(1, layers - 1))
    return share + lengths.clamp(max=window)
