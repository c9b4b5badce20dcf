"""Inputs of GraphKV's functions."""

import torch
from hypothesis import strategies as st
from torch.nn.functional import pad

from spec_tests.draw import booleans, grid, maybe, real
from spec_tests.inputs.graphkv_draw import few, lattice, leads, picks, up_to
from spec_tests.inputs.graphkv_refusals import REFUSALS

__all__ = ["INPUTS", "REFUSALS"]

rounds = st.sampled_from([1, 2, 3, 0])
strengths = st.sampled_from([0.25, 0.5, 1.0])
rules = st.sampled_from(["product", "sequential", "sum"])
kinds = st.sampled_from(["kk", "qk", "qq", "kv", "vv"])
thousands = st.sampled_from([0, 1, 999, 1000, 1999, 2000, 8000, 128_000])


@st.composite
def source_tokens(draw):
    """Scores with many ties; as many sources as the emptiest row has content."""
    shape = (*draw(leads), draw(few))
    protected = draw(st.none() | booleans(*shape))
    content = shape[-1]
    if protected is not None and protected.numel():
        content = int((~protected).sum(-1).min())
    return dict(
        scores=draw(grid(*shape, low=-4, high=4)),
        count=draw(up_to(content)),
        protected=protected,
    )


widths = st.sampled_from([4, 4, 4, 4, 4, 0])
"""A vector of no channels is like nothing."""


@st.composite
def edges(draw):
    """Every kind; keys with and without a heads axis; one to three queries a head."""
    lead, count, width = draw(leads), draw(few), draw(widths)
    shape, numbers = (*lead, count, width), draw(st.sampled_from([lattice, real]))
    group = draw(st.integers(1, 3)) if lead and lead[-1] else 1
    grouped = (*lead[:-1], group * lead[-1], count, width) if lead else shape
    return dict(
        keys=draw(numbers(*shape)),
        sources=draw(picks(count, *lead, size=draw(up_to(count)))),
        kind=draw(kinds),
        queries=draw(numbers(*grouped)),
        values=draw(numbers(*shape)),
        clamp=draw(st.booleans()),
    )


@st.composite
def neighbours(draw, unprotected=True):
    """Edges with many ties; more neighbours asked for than there are."""
    lead, count = draw(leads), draw(few)
    sources = draw(picks(count, *lead, size=draw(up_to(min(count, 4)))))
    return dict(
        weights=draw(grid(*sources.shape, count, low=-4, high=4)),
        sources=sources,
        count=draw(up_to(count + 1)),
        protected=draw(maybe(booleans(*lead, count), unprotected)),
        spare_sources=draw(st.booleans()),
    )


@st.composite
def graph(draw, low=-16):
    """Scores and any graph over them; edges in [low / 16, 1]."""
    lead, count, sources = draw(leads), draw(few), draw(up_to(3))
    return dict(
        scores=draw(grid(*lead, count)),
        weights=draw(grid(*lead, sources, count, low=low)),
        neighbours=draw(booleans(*lead, sources, count)),
        rounds=draw(rounds),
    )


@st.composite
def decay(draw, low=-16, rules=rules):
    """A graph, and how its sources combine."""
    return draw(graph(low)) | dict(strength=draw(strengths), rule=draw(rules))


@st.composite
def enhance(draw, low=-16):
    """A graph and a strength."""
    return draw(graph(low)) | dict(strength=draw(strengths))


@st.composite
def banish(draw):
    """A graph without edges: the signal does not look at them."""
    drawn = draw(graph())
    return {name: drawn[name] for name in ("scores", "neighbours", "rounds")}


@st.composite
def concatenate_heads(draw):
    """Vectors with a heads axis."""
    return dict(vectors=draw(real(*draw(leads), 2, draw(few), 3)))


@st.composite
def graphkv_refine(draw, unprotected=True, **fixed):
    """A layer or a batch of them, on the lattice its graph compares."""
    batch = fixed.pop("batch") if "batch" in fixed else draw(leads)
    head_count, count = draw(st.sampled_from([1, 2, 4])), draw(few)
    per_head = fixed.get("per_head", draw(st.booleans()))

    def rows():
        if per_head:
            return draw(lattice(*batch, head_count, count, 4))
        return draw(lattice(*batch, count, head_count * 4)).unflatten(-1, (-1, 4)).movedim(-2, -3)

    queries = rows()
    if fixed.pop("grouped") if "grouped" in fixed else draw(st.booleans()):
        apart = draw(grid(*queries.shape, low=-2, high=2, scale=1 / 4))
        queries = torch.stack([queries + apart, queries - apart], -3).flatten(-4, -3)
    drawn = dict(
        scores=draw(grid(*batch, head_count, count)),
        keys=rows(),
        keep=count + draw(up_to(8)),
        count=draw(up_to(count)),
        protected=draw(maybe(booleans(*batch, head_count, count), unprotected)),
        queries=queries,
        values=rows(),
        kind=draw(kinds),
        fraction=draw(st.sampled_from([0.1, 0.3, 1.0])),
        rounds=draw(rounds),
        strength=draw(strengths),
        rule=draw(rules),
        signal=draw(st.sampled_from(["decay", "enhance", "evict"])),
        per_head=per_head,
        spare_sources=draw(st.booleans()),
        clamp=draw(st.booleans()),
        exclude_window=draw(st.booleans()),
    )
    return drawn | fixed


def lengthened(x, tokens):
    """Put so many more tokens at the end, that score 0 and are like nothing."""
    vectors = {name: pad(x[name], (0, 0, 0, tokens)) for name in ("keys", "queries", "values")}
    flat = {name: x[name] for name in ("scores", "protected") if x[name] is not None}
    return x | vectors | {name: pad(one, (0, tokens)) for name, one in flat.items()}


@st.composite
def keys(draw, numbers=lattice):
    """Keys of a few tokens."""
    return dict(keys=draw(numbers(*draw(leads), draw(few), 4)))


@st.composite
def cosine_distribution(draw):
    """Keys whose cosines fall between no two bins."""
    return draw(keys()) | dict(bins=draw(st.sampled_from([1, 2, 7, 50])))


@st.composite
def principal_components(draw):
    """Keys that vary along each channel about four times less than along the one before."""
    count = draw(st.sampled_from([0, 1, 2, 4, 8]))
    spread = 4.0 ** -torch.arange(4)
    return dict(
        keys=draw(grid(*draw(leads), count, 4, low=-8, high=8, scale=1.0)) * spread,
        components=draw(st.integers(1, 4)),
    )


@st.composite
def hide_needle(draw):
    """A text, a fact of any length, and any part of the text around it."""
    hidden, tokens = draw(st.integers(0, 3)), draw(st.integers(0, 12))
    return dict(
        haystack=torch.arange(tokens),
        needle=torch.arange(100, 100 + hidden),
        length=hidden + draw(up_to(tokens)),
        depth=draw(st.integers(0, 100)) / 100,
    )


@st.composite
def needle_recall(draw):
    """Words of which some are the answer's, some twice, and fillers."""
    words, said = draw(st.integers(1, 5)), draw(st.integers(0, 6))
    shape = (*draw(leads), said)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    return dict(
        responses=torch.randint(-1, 7, shape, generator=generator),
        answer=torch.randint(0, 5, (words,), generator=generator),
    )


INPUTS = dict(
    source_count=st.integers(0, 600).flatmap(
        lambda keep: st.fixed_dictionaries(
            dict(
                keep=st.just(keep),
                fraction=st.integers(1, 100).map(lambda percent: percent / 100),
                window=st.integers(0, keep),
            )
        )
    ),
    source_tokens=source_tokens(),
    edges=edges(),
    neighbour_count=st.fixed_dictionaries(
        dict(predefined=few, length=st.integers(0, 9).map(lambda more: 1000 * more) | thousands)
    ),
    neighbours=neighbours(),
    decay=decay(),
    enhance=enhance(),
    banish=banish(),
    concatenate_heads=concatenate_heads(),
    graphkv_refine=graphkv_refine()
    | graphkv_refine(adaptive=False)
    | graphkv_refine(batch=(), adaptive=True).map(lambda x: lengthened(x, 1000)),
    cosine_matrix=st.sampled_from([lattice, real]).flatmap(keys),
    cosine_distribution=cosine_distribution(),
    principal_components=principal_components(),
    hide_needle=hide_needle(),
    needle_recall=needle_recall(),
    kv_bytes=st.fixed_dictionaries(
        dict(
            tokens=st.integers(0, 10**6),
            layers=st.integers(1, 80),
            heads=st.integers(1, 32),
            width=st.integers(1, 256),
            element_bytes=st.sampled_from([1, 2, 4]),
        )
    ),
)
