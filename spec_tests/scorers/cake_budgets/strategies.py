"""Strategies for preferences and budgets."""

from functools import partial

import torch
from hypothesis import strategies as st

from spec_tests.scorers.padding_masks import batches
from spec_tests.strategies import Refusal, gaussian_tensor, grid


@st.composite
def cake_budgets(draw, most=14):
    """Preferences from a grid, with zeros and ties, or Gaussian; budgets from nothing to too much.

    Some preferences are so large that their layers are full or nearly full.
    """
    layers, batch = draw(st.sampled_from([3, 4, 5, 2, 6, 1, 0])), draw(batches)
    window = draw(st.integers(0, 4))
    # if one share almost equals the budget, its quota can round in two ways
    of_grid = partial(grid, high=8)
    number, power = draw(st.sampled_from([(of_grid, 1), (gaussian_tensor, 1), (of_grid, 4)]))
    rows, beyond = torch.Size(batch).numel(), draw(st.integers(0, most))
    # eviction starts where a prompt is longer than the budget plus the window
    near = st.sampled_from([2, 1, 3, 5, 0, 8]).map(lambda excess: beyond + 2 * window + excess)
    lengths = draw(st.lists(near | st.integers(0, most), min_size=rows, max_size=rows))
    tokens = torch.tensor(lengths, dtype=torch.int64).reshape(batch)
    return dict(
        preferences=draw(number(layers, *batch)).abs() ** power,
        keep=window + beyond,
        tokens=draw(st.sampled_from([tokens, draw(near)])),
        window=window,
        exact=draw(st.booleans()),
    )


INPUTS = dict(cake_cascade=cake_budgets())

preferences = torch.tensor([[0.5, 1.0], [0.25, 2.0]])

lengths = torch.tensor([7, 9])

budgeted = dict(preferences=preferences, keep=5, tokens=lengths, window=3, exact=False)

bad_budgets = [Refusal("keep", 2, ValueError, ">= 3"), Refusal("tokens", 2.0, TypeError, "integer")]

REFUSALS = dict(cake_budgets=(budgeted, bad_budgets), cake_cascade=(budgeted, bad_budgets))
