"""Strategies for sequences and for attention weights."""

import torch
from hypothesis import strategies as st

from spec_tests.strategies import Refusal, booleans, gaussian_tensor, grid, heads, importance

lengths = st.integers(1, 24)


@st.composite
def autocorrelation(draw):
    """Half of the sequences are constant, at least after their first value."""
    count = draw(lengths)
    shape = (*draw(heads), count)
    if draw(st.booleans()):
        values = draw(grid(*shape, low=-16))  # the mean of equal numbers is exact
        values = torch.cat([values[..., :1], values[..., -1:].expand(values[..., 1:].shape)], -1)
    else:
        values = draw(grid(*shape, low=-16) | gaussian_tensor(*shape))
    return dict(values=values, distances=draw(st.integers(0, count - 1)))


@st.composite
def distance_profile(draw):
    """Attention weights of all queries, or of the last few."""
    count = draw(st.integers(1, 12))
    queries = draw(st.integers(1, count))
    weights = draw(importance(*draw(heads), queries, count))
    return dict(weights=weights, distances=draw(st.integers(0, count - 1)))


@st.composite
def attention_density(draw):
    """The content of a text with the paper's defaults, or any content with at least one query."""
    count = draw(st.integers(1, 12) | st.integers(50, 60))
    queries = draw(st.integers(1, count))
    weights, content = draw(importance(*draw(heads), queries, count)), None
    if count < 50 or queries == 1 or draw(st.booleans()):
        content = draw(booleans(count))
        content[count - draw(st.integers(1, queries))] = True
    return dict(weights=weights, content=content)


@st.composite
def content_series(draw):
    """Inputs whose windows leave some tokens, or none."""
    count, sinks = draw(st.integers(0, 60)), draw(st.integers(0, 6))
    recent = draw(st.none() | st.integers(0, 6))
    left = max(0, count - sinks - (count // 50 if recent is None else recent))
    trimmed = draw(st.integers(0, left))
    values = draw(importance(*draw(heads), count))
    return dict(values=values, trimmed=trimmed, sinks=sinks, recent=recent)


scores = torch.tensor([[0.5, 0.25, 0.75, 0.0]])
content = torch.tensor([True, False, False, True])
too_far = Refusal("distances", 4, ValueError, "[0, 3]")

REFUSALS = dict(
    autocorrelation=(dict(values=scores, distances=2), [too_far]),
    distance_profile=(
        dict(weights=scores, distances=2),
        [
            Refusal("weights", lambda weights: weights[:0], ValueError, "queries"),
            Refusal("weights", lambda weights: weights.repeat(5, 1), ValueError, "[1, 4]"),
            too_far,
        ],
    ),
    attention_density=(
        dict(weights=scores.repeat(2, 1), content=content),
        [
            Refusal("weights", lambda weights: weights.repeat(3, 1), ValueError, "[1, 4]"),
            Refusal("content", torch.arange(4) < 2, ValueError, "true somewhere"),
        ],
    ),
    content_series=(
        dict(values=scores, trimmed=1, sinks=1, recent=1),
        [Refusal("trimmed", 3, ValueError, "[0, 2]")],
    ),
)
