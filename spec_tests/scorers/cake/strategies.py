"""Strategies for CAKE's windows."""

import torch
from hypothesis import strategies as st

from spec_tests.attention.strategies import query_refusals
from spec_tests.scorers.padding_masks import bad_padding, batches, groups, key_heads, lengths, masks
from spec_tests.strategies import Refusal, signed_numbers

temperatures = st.sampled_from([0.5, 1.0, 2.0])


@st.composite
def observation_window_inputs(draw):
    """Inputs with grouped heads, any window, and at least as many queries as the window."""
    batch, width, window = (
        draw(batches),
        draw(st.integers(1, 3)),
        draw(st.sampled_from([2, 3, 2, 4])),
    )
    kv_heads, group, tokens = draw(key_heads), draw(groups), draw(lengths)
    count = draw(st.integers(min(window, tokens), tokens))
    number = draw(signed_numbers)
    return dict(
        queries=draw(number(*batch, kv_heads * group, count, width)),
        keys=draw(number(*batch, kv_heads, tokens, width)),
        window=window,
        valid=draw(masks(batch, tokens)),
    )


@st.composite
def cake(draw, shape=observation_window_inputs()):  # noqa: B008
    """Inputs with kernels that may exceed the pooled tokens, and small weights of the variance.

    At the default weight of 200 the variance dominates the score, and amplifies rounding errors.
    """
    gamma, kernel = st.sampled_from([0.0, 1.0, 8.0]), st.sampled_from([1, 3, 5, 7])
    return draw(shape) | dict(gamma=draw(gamma), kernel=draw(kernel))


@st.composite
def cake_preference(draw, shape=observation_window_inputs()):  # noqa: B008
    """Inputs with temperatures below and above 1."""
    return draw(shape) | dict(tau1=draw(temperatures), tau2=draw(temperatures))


generator = torch.Generator().manual_seed(3)

queries, keys = (torch.randn(heads, 6, 2, generator=generator) for heads in (4, 2))

valid = torch.arange(6) > 0

seen = dict(queries=queries, keys=keys, window=2, valid=valid)

bad_attention = [
    *query_refusals(tokens=6),
    Refusal("queries", lambda q: q[:, :1], ValueError, "the last 2"),
    bad_padding,
]

SCORED = dict(
    cake=lambda impl, queries, keys, valid, **_: impl.cake(
        queries, keys, window=2, gamma=1.0, valid=valid
    )
)

REFUSALS = dict(
    cake=(
        seen | dict(gamma=200.0, kernel=5),
        [*bad_attention, Refusal("kernel", 4, ValueError, "odd")],
    ),
    cake_preference=(
        seen | dict(tau1=1.0, tau2=1.0),
        [*bad_attention, Refusal("tau1", 0.001, ValueError, "where results are finite")],
    ),
)
