"""Strategies for graphs: vectors with exact cosines, positions, sizes that are rarely 0.

Discrete results (sources, neighbours, bins) are computed from `lattice` vectors. Their lengths are
powers of two, so every cosine is a multiple of 1/16 in any order of operations, and many are equal.
"""

from functools import cache
from typing import get_args

import torch
from hypothesis import strategies as st

import reference
from reference.graphkv.graph import Kind
from spec_tests.from_signature import draw_choices
from spec_tests.strategies import (
    Refusal,
    booleans,
    gaussian_tensor,
    generators,
    heads,
    importance,
    last_element_replacer,
    longer,
    strategy_or_none,
)

# numbers of 0 and 1 occur, but rarely: most examples have tokens to compare
few = st.sampled_from([*range(3, 9), *range(3, 9), 2, 1, 0])
leads = heads
KINDS = get_args(Kind)
kinds = st.sampled_from(KINDS)
thousands = st.sampled_from([0, 1, 999, 1000, 1999, 2000, 8000, 128_000])


@cache
@st.composite
def lattice(draw, *shape, zero=True):
    """Vectors with 0, 1, 4 or 16 entries of one magnitude, a power of two, and random signs."""
    generator = draw(generators)
    lead, width = shape[:-1], shape[-1]
    sizes = torch.tensor([0] * zero + [s for s in (1, 1, 4, 4, 16, 16) if s <= width])
    size = sizes[torch.randint(len(sizes), lead, generator=generator)]
    rank = torch.rand(shape, generator=generator).argsort(-1).argsort(-1)
    sign = torch.randint(0, 2, shape, generator=generator) * 2.0 - 1
    magnitude = 2.0 ** torch.randint(-1, 2, lead, generator=generator)
    return torch.where(rank < size[..., None], sign * magnitude[..., None], 0.0)


@st.composite
def picks(draw, count, *lead, size):
    """Positions of `size` different tokens among `count` in any order, for each index of `lead`."""
    return torch.rand((*lead, count), generator=draw(generators)).argsort(-1)[..., :size]


def up_to(most):
    """Return a strategy for a number in [0, most], where 0 is the rarest."""
    return st.sampled_from([*range(1, most + 1), *range(1, most + 1), 0])


@st.composite
def source_tokens(draw):
    """Scores, and at most as many sources as the row with the least content has."""
    shape = (*draw(leads), draw(few))
    protected = draw(st.none() | booleans(*shape))
    content = shape[-1]
    if protected is not None and protected.numel():
        content = int((~protected).sum(-1).min())
    return dict(
        scores=draw(importance(*shape, low=-4, high=4)),
        count=draw(up_to(content)),
        protected=protected,
    )


widths = st.sampled_from([4, 4, 4, 4, 4, 0])
"""A vector of width 0 has cosine 0 with every vector."""


@st.composite
def edges(draw):
    """Inputs of every kind: keys with and without a heads axis, one to three queries a head."""
    lead, count, width = draw(leads), draw(few), draw(widths)
    shape, numbers = (*lead, count, width), draw(st.sampled_from([lattice, gaussian_tensor]))
    group = draw(st.integers(1, 3)) if lead and lead[-1] else 1
    grouped = (*lead[:-1], group * lead[-1], count, width) if lead else shape
    return dict(
        keys=draw(numbers(*shape)),
        sources=draw(picks(count, *lead, size=draw(up_to(count)))),
        queries=draw(numbers(*grouped)),
        values=draw(numbers(*shape)),
        **draw(draw_choices(reference.edges)),
    )


@st.composite
def neighbours(draw, unprotected=True):
    """Edges, and sometimes more neighbours than tokens."""
    lead, count = draw(leads), draw(few)
    sources = draw(picks(count, *lead, size=draw(up_to(min(count, 4)))))
    return dict(
        weights=draw(importance(*sources.shape, count, low=-4, high=4)),
        sources=sources,
        count=draw(up_to(count + 1)),
        protected=draw(strategy_or_none(booleans(*lead, count), unprotected)),
        **draw(draw_choices(reference.neighbours)),
    )


@st.composite
def source_count(draw):
    """A budget, and a window of at most all of it."""
    keep, percent = draw(st.integers(0, 600)), draw(st.integers(1, 100))
    return dict(keep=keep, fraction=percent / 100, window=draw(st.integers(0, keep)))


INPUTS = dict(
    neighbour_count=dict(
        predefined=few, length=st.integers(0, 9).map(lambda number: 1000 * number) | thousands
    ),
)

scores = torch.tensor([[0.5, 0.25, 0.75, 0.0], [1.0, 0.5, 0.25, 0.5]])
mask = torch.tensor([[True, False, False, False], [False, False, False, True]])
sources = torch.tensor([[2, 1], [0, 1]])
vectors = torch.linspace(-1, 1, 24).reshape(2, 4, 3)
grouped = torch.linspace(-1, 2, 48).reshape(4, 4, 3)
ends = dict(queries=grouped, values=vectors)
weights = torch.linspace(-1, 1, 16).reshape(2, 2, 4)
bad_sources = [
    Refusal("sources", last_element_replacer(-1), ValueError, "[0, 3]"),
    Refusal("sources", last_element_replacer(99), ValueError, "[0, 3]"),
]
bad_ends = [
    Refusal("queries", longer, ValueError, "shape"),
    Refusal("queries", lambda q: torch.cat([q, q[:1]]), ValueError, "multiple of the"),
    Refusal("queries", lambda q: q[:0], ValueError, "multiple of the"),
    Refusal("values", longer, ValueError, "shape"),
]

GOOD = dict(neighbour_count=dict(predefined=8, length=5000))

REFUSALS = dict(
    source_count=(
        dict(keep=10, fraction=0.3, window=2),
        [Refusal("window", 11, ValueError, "[0, 10]")],
    ),
    source_tokens=(
        dict(scores=scores, count=3, protected=mask),
        [Refusal("count", 4, ValueError, "[0, 3]")],
    ),
    edges=(
        dict(keys=vectors, sources=sources, kind="qk", **ends, clamp=True),
        [*bad_sources, *bad_ends, Refusal("queries", None, ValueError, "given where kind is 'qk'")],
    ),
    neighbours=(
        dict(weights=weights, sources=sources, count=2, protected=mask, spare_sources=True),
        bad_sources,
    ),
)
