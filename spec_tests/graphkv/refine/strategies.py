"""Strategies for layers to refine, whose graphs have exact cosines."""

from functools import partial

import torch
from hypothesis import strategies as st
from torch.nn.functional import pad

import reference
from spec_tests.from_signature import draw_choices
from spec_tests.graphkv.decay.strategies import rounds, strengths
from spec_tests.graphkv.graph.strategies import (
    bad_ends,
    ends,
    few,
    lattice,
    leads,
    mask,
    scores,
    up_to,
    vectors,
)
from spec_tests.strategies import (
    Refusal,
    booleans,
    gaussian_tensor,
    grid,
    importance,
    strategy_or_none,
)


@st.composite
def concatenate_heads(draw):
    """Vectors with a heads axis."""
    return dict(vectors=draw(gaussian_tensor(*draw(leads), 2, draw(few), 3)))


@st.composite
def graphkv_refine(draw, unprotected=True, **fixed):
    """A layer, or a batch of layers, with exact cosines."""
    batch = fixed.pop("batch") if "batch" in fixed else draw(leads)
    head_count, count = draw(st.sampled_from([1, 2, 4])), draw(fixed.pop("tokens", few))
    per_head = fixed.get("per_head", draw(st.booleans()))
    numbers = fixed.pop("numbers", grid)

    def rows():
        if per_head:
            return draw(lattice(*batch, head_count, count, 4))
        return draw(lattice(*batch, count, head_count * 4)).unflatten(-1, (-1, 4)).movedim(-2, -3)

    queries = rows()
    if fixed.pop("grouped") if "grouped" in fixed else draw(st.booleans()):
        apart = draw(grid(*queries.shape, low=-2, high=2, scale=1 / 4))
        queries = torch.stack([queries + apart, queries - apart], -3).flatten(-4, -3)
    drawn = dict(
        scores=draw(numbers(*batch, head_count, count)),
        keys=rows(),
        keep=count + draw(up_to(8)),
        count=draw(up_to(count)),
        protected=draw(strategy_or_none(booleans(*batch, head_count, count), unprotected)),
        queries=queries,
        values=rows(),
        fraction=draw(st.sampled_from([0.1, 0.3, 1.0])),
        rounds=draw(rounds),
        strength=draw(strengths),
    )
    words = draw(draw_choices(reference.graphkv_refine, "per_head", "adaptive"))
    return drawn | words | dict(per_head=per_head) | fixed


def lengthened(x, tokens):
    """Return the inputs with more tokens at the end: their scores are 0, and their cosines too."""
    vectors = {name: pad(x[name], (0, 0, 0, tokens)) for name in ("keys", "queries", "values")}
    flat = {name: x[name] for name in ("scores", "protected") if x[name] is not None}
    return x | vectors | {name: pad(tensor, (0, tokens)) for name, tensor in flat.items()}


# the sources of a head are ranked by its scores, those of a layer by a mean
INPUTS = dict(
    graphkv_refine=graphkv_refine(numbers=importance, per_head=True)
    | graphkv_refine(numbers=partial(importance, close=False))
    | graphkv_refine(adaptive=False)
    | graphkv_refine(batch=(), adaptive=True).map(lambda x: lengthened(x, 1000))
)

flags = dict(per_head=True, spare_sources=False, clamp=False, exclude_window=True, adaptive=False)

GOOD = dict(concatenate_heads=dict(vectors=vectors))

# the means of the first two tokens differ by less than bfloat16 holds
close = torch.tensor([[1.0, 1.0, 0.5], [1.0, 1 + 2**-7, 0.5]])
triangle = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]).expand(2, 3, 2)
CORNERS = dict(graphkv_refine=[dict(scores=close, keys=triangle, keep=1, count=1)])

REFUSALS = dict(
    graphkv_refine=(
        dict(scores=scores, keys=vectors, keep=3, count=2, protected=mask, **ends, kind="kv")
        | dict(fraction=0.5, rounds=1, strength=1.0, rule="product", signal="decay", **flags),
        [
            Refusal("keys", lambda keys: keys[:, :3], ValueError, "shape"),
            Refusal("keep", 0, ValueError, ">= 1"),
            *bad_ends,
            Refusal("values", None, ValueError, "given where kind is 'kv'"),
        ],
    ),
)
