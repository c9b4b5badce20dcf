"""Inputs of the coverage objective and its greedy oracle."""

import torch
from hypothesis import strategies as st

from spec_tests.draw import (
    INFINITE,
    NAN,
    NEGATIVE,
    Refusal,
    bad_importance,
    bad_mask,
    booleans,
    grid,
    heads,
    longer,
    real,
)

few = st.integers(0, 9)
dtypes = st.sampled_from([torch.float64, torch.float32, torch.bfloat16])


@st.composite
def ties(draw, *shape):
    """Sixteenths from a seed: exact sums, many ties, and no list of n² draws."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    return torch.randint(0, draw(st.integers(2, 9)), shape, generator=generator) / 16


def rough(*shape):
    """Numbers at least 0: ties and exact sums, or neither."""
    return ties(*shape) | real(*shape).map(torch.abs)


@st.composite
def kernel(draw, tokens):
    """A kernel that covers every token: a window, or falling weights, with holes further out."""
    near = torch.full((min(tokens, 1),), draw(st.sampled_from([0.25, 1.0])))
    return torch.cat([near, draw(grid(max(tokens - 1, 0), low=0, high=4, scale=0.25))])


@st.composite
def window_kernel(draw):
    """A window may be wider than the context."""
    return dict(
        tokens=draw(few), radius=draw(st.integers(0, 12) | st.just(10**30)), dtype=draw(dtypes)
    )


@st.composite
def gaussian_kernel(draw):
    """From a spike to a flat kernel."""
    deviation = draw(st.sampled_from([1e-200, 0.5, 1.0, 2.5, 1e6]))
    return dict(tokens=draw(few), deviation=deviation, dtype=draw(dtypes))


@st.composite
def coverage_weights(draw):
    """Scores with many ties and zeros."""
    tokens = draw(few)
    return dict(scores=draw(rough(*draw(heads), tokens)), kernel=draw(kernel(tokens)))


@st.composite
def coverage(draw):
    """Any weights at least 0, normalised or not, and any set, empty and full ones included."""
    shape = (*draw(heads), draw(few))
    return dict(weights=draw(rough(*shape, shape[-1])), kept=draw(booleans(*shape)))


@st.composite
def overlap(draw):
    """Some columns are zero."""
    tokens = draw(st.integers(1, 9))
    weights = draw(rough(*draw(heads), tokens, tokens)) * draw(booleans(tokens))
    return dict(weights=weights, hub=draw(st.integers(0, tokens - 1)))


def spread(scores, falling):
    """Return what scores cover, evenly within a radius of 2 or falling off as a Gaussian."""
    places = torch.arange(scores.shape[-1])
    distances = (places[:, None] - places).abs()
    near = torch.exp(distances**2 / -4.5) if falling else (distances <= 2).float()
    return scores[..., None, :] * near / near.sum(0)


@st.composite
def greedy(draw):
    """Weights whose gains tie often, and whose differences float64 sums exactly.

    Half of them are as `coverage_weights` gives them, rounded to float32.
    """
    tokens = draw(few)
    shape, falling = (*draw(heads), tokens), draw(st.booleans())
    weights = draw(ties(*shape, tokens) | grid(*shape, high=4).map(lambda s: spread(s, falling)))
    return dict(weights=weights, keep=draw(st.integers(0, tokens)))


INPUTS = dict(
    window_kernel=window_kernel(),
    gaussian_kernel=gaussian_kernel(),
    coverage_weights=coverage_weights(),
    coverage=coverage(),
    marginal_gain=coverage(),
    overlap=overlap(),
    greedy=greedy(),
    lazy_greedy=greedy(),
)

scores = torch.tensor([[0.5, 0.25, 0.75]])
flat = torch.ones(3)
weights = torch.tensor([[[0.5, 0.25, 0.0], [0.25, 0.5, 0.25], [0.0, 0.25, 0.5]]])
kept = torch.tensor([[True, False, True]])

bad_tokens = [
    Refusal("tokens", -1, ValueError, ">= 0"),
    Refusal("tokens", 2.0, TypeError, "integer"),
]
bad_dtype = Refusal("dtype", torch.int64, TypeError, "floating-point")
bad_weights = [*bad_importance("weights"), Refusal("weights", longer, ValueError, "square")]
bad_keep = [
    Refusal("keep", 4, ValueError, "[0, 3]"),
    Refusal("keep", 1.0, TypeError, "integer"),
]

REFUSALS = dict(
    window_kernel=(
        dict(tokens=3, radius=1, dtype=torch.float32),
        [
            *bad_tokens,
            Refusal("radius", -1, ValueError, ">= 0"),
            Refusal("radius", True, TypeError, "integer"),
            bad_dtype,
        ],
    ),
    gaussian_kernel=(
        dict(tokens=3, deviation=1.0, dtype=torch.float32),
        [
            *bad_tokens,
            Refusal("deviation", 0.0, ValueError, "> 0"),
            Refusal("deviation", None, TypeError, "a number"),
            Refusal("deviation", float("nan"), ValueError, "> 0"),
            bad_dtype,
        ],
    ),
    coverage_weights=(
        dict(scores=scores, kernel=flat),
        [
            *bad_importance(),
            Refusal("kernel", NEGATIVE, ValueError, "finite and >= 0"),
            Refusal("kernel", NAN, ValueError, "finite and >= 0"),
            Refusal("kernel", INFINITE, ValueError, "finite and >= 0"),
            Refusal("kernel", longer, ValueError, "shape"),
            Refusal("kernel", torch.tensor([0.0, 0.0, 1.0]), ValueError, "> 0 around every token"),
        ],
    ),
    coverage=(dict(weights=weights, kept=kept), [*bad_weights, *bad_mask("kept")]),
    marginal_gain=(dict(weights=weights, kept=kept), [*bad_weights, *bad_mask("kept")]),
    overlap=(
        dict(weights=weights, hub=1),
        [
            *bad_weights,
            Refusal("hub", 3, ValueError, "[0, 2]"),
            Refusal("hub", 1.0, TypeError, "integer"),
        ],
    ),
    greedy=(dict(weights=weights, keep=2), [*bad_weights, *bad_keep]),
    lazy_greedy=(dict(weights=weights, keep=2), [*bad_weights, *bad_keep]),
)
