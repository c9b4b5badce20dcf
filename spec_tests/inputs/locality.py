"""Inputs of the diagnostics: segments, autocorrelation, suppression, profiles, chains."""

import torch
from hypothesis import strategies as st

from spec_tests.draw import (
    INFINITE,
    NAN,
    Refusal,
    bad_importance,
    bad_mask,
    booleans,
    grid,
    heads,
    numbers,
    real,
    spoiler,
    tokens,
)

lengths = st.integers(1, 24)
no_heads = st.sampled_from([(), (1,), (3,), (2, 2)])


@st.composite
def segment_coverage(draw):
    """Any positions in any order, repetitions included; more segments than tokens too."""
    shape, count = (*draw(heads), draw(tokens)), draw(lengths)
    codes = draw(grid(*shape, low=0, high=count - 1, scale=1))
    return dict(order=codes.long(), tokens=count, segments=draw(st.integers(1, 30)))


@st.composite
def autocorrelation(draw):
    """Half of the sequences are flat but for their first value, or flat altogether."""
    count = draw(lengths)
    shape = (*draw(heads), count)
    values = draw(grid(*shape, low=-16) | real(*shape))
    if draw(st.booleans()):
        values = torch.cat([values[..., :1], values[..., -1:].expand(values[..., 1:].shape)], -1)
    return dict(values=values, distances=draw(st.integers(0, count - 1)))


@st.composite
def nms(draw):
    """Scores with many ties."""
    return dict(
        scores=draw(grid(*draw(heads), draw(tokens))),
        radius=draw(st.integers(0, 6)),
        factor=draw(st.sampled_from([0.0, 0.25, 0.3, 1.0])),
    )


@st.composite
def distance_profile(draw):
    """The queries may be all positions or the last few."""
    count = draw(st.integers(1, 12))
    queries = draw(st.integers(1, count))
    weights = draw(grid(*draw(heads), queries, count))
    return dict(weights=weights, distances=draw(st.integers(0, count - 1)))


@st.composite
def attention_density(draw):
    """The paper's content of a long enough text, or any that has a query."""
    count = draw(st.integers(1, 12) | st.integers(50, 60))
    queries = draw(st.integers(1, count))
    weights, content = draw(grid(*draw(heads), queries, count)), None
    if count < 50 or queries == 1 or draw(st.booleans()):
        content = draw(booleans(count))
        content[count - draw(st.integers(1, queries))] = True
    return dict(weights=weights, content=content)


@st.composite
def content_series(draw):
    """Windows that leave something, and some that leave nothing."""
    count, sinks = draw(st.integers(0, 60)), draw(st.integers(0, 6))
    recent = draw(st.none() | st.integers(0, 6))
    left = max(0, count - sinks - (count // 50 if recent is None else recent))
    trimmed = draw(st.integers(0, left))
    values = draw(grid(*draw(heads), count))
    return dict(values=values, trimmed=trimmed, sinks=sinks, recent=recent)


@st.composite
def uniform_spread(draw):
    """Up to as many picks as tokens."""
    count = draw(st.integers(0, 200))
    return dict(tokens=count, picks=draw(st.integers(0, count)))


@st.composite
def random_order(draw):
    """Every seed NumPy takes."""
    return dict(tokens=draw(st.integers(0, 200)), seed=draw(st.integers(0, 2**32 - 1)))


@st.composite
def retained_chains(draw):
    """Any two selections; the span has at least one token."""
    shape = (*draw(no_heads), draw(lengths))
    span = draw(booleans(shape[-1]))
    span[draw(st.integers(0, shape[-1] - 1))] = True
    return dict(base=draw(booleans(*shape)), refined=draw(booleans(*shape)), span=span)


INPUTS = dict(
    segment_coverage=segment_coverage(),
    autocorrelation=autocorrelation(),
    nms=nms(),
    distance_profile=distance_profile(),
    attention_density=attention_density(),
    content_series=content_series(),
    uniform_spread=uniform_spread(),
    random_order=random_order(),
    retained_chains=retained_chains(),
)

scores = torch.tensor([[0.5, 0.25, 0.75, 0.0]])
mask = torch.tensor([[True, False, False, True], [False, True, False, True]])
bad_tokens = [
    Refusal("tokens", -1, ValueError, ">= 0"),
    Refusal("tokens", 4.0, TypeError, "integer"),
]
bad_distances = [
    Refusal("distances", 4, ValueError, "[0, 3]"),
    Refusal("distances", 1.0, TypeError, "integer"),
]

REFUSALS = dict(
    segment_coverage=(
        dict(order=torch.tensor([0, 3, 1]), tokens=4, segments=2),
        [
            Refusal("order", numbers, TypeError, "int64"),
            Refusal("order", spoiler(4), ValueError, "[0, 3]"),
            *bad_tokens,
            Refusal("segments", 0, ValueError, ">= 1"),
            Refusal("segments", 2.0, TypeError, "integer"),
        ],
    ),
    autocorrelation=(
        dict(values=scores, distances=2),
        [
            Refusal("values", lambda values: values.long(), TypeError, "floating-point"),
            Refusal("values", NAN, ValueError, "finite"),
            Refusal("values", INFINITE, ValueError, "finite"),
            *bad_distances,
        ],
    ),
    nms=(
        dict(scores=scores, radius=1, factor=0.3),
        [
            *bad_importance(),
            Refusal("radius", -1, ValueError, ">= 0"),
            Refusal("radius", 1.5, TypeError, "integer"),
            Refusal("factor", -0.1, ValueError, "[0, 1]"),
            Refusal("factor", 1.1, ValueError, "[0, 1]"),
            Refusal("factor", "0.3", TypeError, "a number"),
        ],
    ),
    distance_profile=(
        dict(weights=scores, distances=2),
        [
            *bad_importance("weights"),
            Refusal("weights", lambda weights: weights[:0], ValueError, "queries"),
            Refusal("weights", lambda weights: weights.repeat(5, 1), ValueError, "[1, 4]"),
            *bad_distances,
        ],
    ),
    attention_density=(
        dict(weights=scores.repeat(2, 1), content=mask[0]),
        [
            *bad_importance("weights"),
            Refusal("weights", lambda weights: weights.repeat(3, 1), ValueError, "[1, 4]"),
            *bad_mask("content"),
            Refusal("content", torch.arange(4) < 2, ValueError, "true somewhere"),
            Refusal("weights", lambda weights: weights[0], ValueError, "2 axes"),
        ],
    ),
    content_series=(
        dict(values=scores, trimmed=1, sinks=1, recent=1),
        [
            Refusal("values", lambda values: values.long(), TypeError, "floating-point"),
            Refusal("trimmed", 3, ValueError, "[0, 2]"),
            Refusal("trimmed", 1.0, TypeError, "integer"),
            Refusal("sinks", -1, ValueError, ">= 0"),
            Refusal("sinks", 1.0, TypeError, "integer"),
            Refusal("recent", -1, ValueError, ">= 0"),
            Refusal("recent", 1.0, TypeError, "integer"),
        ],
    ),
    uniform_spread=(
        dict(tokens=4, picks=2),
        [
            *bad_tokens,
            Refusal("picks", 5, ValueError, "[0, 4]"),
            Refusal("picks", 1.0, TypeError, "integer"),
        ],
    ),
    random_order=(
        dict(tokens=4, seed=0),
        [
            *bad_tokens,
            Refusal("seed", -1, ValueError, "[0, 4294967295]"),
            Refusal("seed", 2**32, ValueError, "[0, 4294967295]"),
            Refusal("seed", 1.0, TypeError, "integer"),
        ],
    ),
    retained_chains=(
        dict(base=mask, refined=~mask, span=mask[0]),
        [
            Refusal("base", numbers, TypeError, "boolean"),
            *bad_mask("refined"),
            *bad_mask("span"),
            Refusal("span", torch.zeros(4, dtype=torch.bool), ValueError, "true somewhere"),
        ],
    ),
)
