"""Inputs of CAKE."""

import torch
from hypothesis import strategies as st

from spec_tests.draw import grid, real, signed
from spec_tests.inputs.cake_refusals import REFUSALS
from spec_tests.inputs.padded import batches, groups, key_heads, lengths, masks

__all__ = ["INPUTS", "REFUSALS"]

temperatures = st.sampled_from([0.5, 1.0, 2.0])


@st.composite
def observed(draw, batch=batches):
    """Grouped heads, a window shorter or longer than the tokens, as many queries or more."""
    batch, width, window = draw(batch), draw(st.integers(1, 3)), draw(st.sampled_from([2, 3, 2, 4]))
    kv_heads, group, tokens = draw(key_heads), draw(groups), draw(lengths)
    count = draw(st.integers(min(window, tokens), tokens))
    number = draw(st.sampled_from([signed, real]))
    return dict(
        queries=draw(number(*batch, kv_heads * group, count, width)),
        keys=draw(number(*batch, kv_heads, tokens, width)),
        window=window,
        valid=draw(masks(batch, tokens)),
    )


@st.composite
def cake(draw, shape=observed()):  # noqa: B008
    """Pooling wider than what it pools; a variance that is heavy, yet not all there is.

    At the default weight of 200 the score is a variance, which amplifies what the weights are off.
    """
    gamma, kernel = st.sampled_from([0.0, 1.0, 8.0]), st.sampled_from([1, 3, 5, 7])
    return draw(shape) | dict(gamma=draw(gamma), kernel=draw(kernel))


@st.composite
def cake_preference(draw, shape=observed()):  # noqa: B008
    """Temperatures on either side of 1."""
    return draw(shape) | dict(tau1=draw(temperatures), tau2=draw(temperatures))


@st.composite
def cake_budgets(draw, most=14):
    """Preferences of a grid, with zeros and ties, or any; budgets from nothing to too much.

    Some are so much larger than others that layers are full, and others nearly.
    """
    layers, batch = draw(st.sampled_from([3, 4, 5, 2, 6, 1, 0])), draw(batches)
    window = draw(st.integers(0, 4))
    number = draw(st.sampled_from([lambda *shape: grid(*shape, high=8), real]))
    rows, beyond = torch.Size(batch).numel(), draw(st.integers(0, most))
    # a prompt is evicted from where it is longer than the budget and a window
    near = st.sampled_from([2, 1, 3, 5, 0, 8]).map(lambda more: beyond + 2 * window + more)
    lengths = draw(st.lists(near | st.integers(0, most), min_size=rows, max_size=rows))
    tokens = torch.tensor(lengths, dtype=torch.int64).reshape(batch)
    return dict(
        preferences=draw(number(layers, *batch)).abs() ** draw(st.sampled_from([1, 4])),
        keep=window + beyond,
        tokens=draw(st.sampled_from([tokens, draw(near)])),
        window=window,
        exact=draw(st.booleans()),
    )


INPUTS = dict(
    cake=cake(),
    cake_preference=cake_preference(),
    cake_budgets=cake_budgets(),
    cake_cascade=cake_budgets(),
)
