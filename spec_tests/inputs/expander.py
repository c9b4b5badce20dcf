"""Inputs of HEX's expander functions."""

import numpy as np
import torch
from hypothesis import strategies as st

from spec_tests.draw import booleans
from spec_tests.inputs.expander_refusals import GOOD, REFUSALS

__all__ = ["GOOD", "INPUTS", "REFUSALS"]

seeds = st.integers(0, 99)


@st.composite
def biregular(draw):
    """Tokens, channels and a token degree with both degrees at least 3."""
    tall, wide = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    parts = draw(st.integers(3, 8))
    steps = draw(st.integers(-(-3 // min(tall, wide)), parts))
    return dict(tokens=parts * tall, channels=parts * wide, token_degree=steps * wide)


@st.composite
def any_degree(draw):
    """Tokens, channels and a token degree that some graph has, biregular or not."""
    tokens, channels = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    return dict(tokens=tokens, channels=channels, token_degree=draw(st.integers(0, channels)))


@st.composite
def random_graph(draw):
    """What `random_expander` takes."""
    near = draw(st.booleans())
    sizes = draw(any_degree() if near else biregular())
    return dict(**sizes, seed=draw(seeds), near=near)


@st.composite
def expander(draw):
    """What `expander_mask` takes: feasible, near and tiled."""
    near = draw(st.booleans())
    sizes = draw(any_degree() if near else biregular())
    degree, tokens = sizes.pop("token_degree"), sizes["tokens"]
    tiles = draw(st.sampled_from([0, 1, 3]))
    return dict(
        tokens=tokens * max(tiles, 1),
        channels=sizes["channels"],
        density=degree / sizes["channels"],
        seed=draw(seeds),
        near=near,
        tile=tiles > 0,
        block=tokens,
    )


@st.composite
def degrees(draw):
    """What `biregular_degrees` takes."""
    x = draw(expander())
    return {k: x[k] for k in ("tokens", "channels", "density", "near")} | (
        dict(tokens=x["block"]) if x["tile"] else {}
    )


@st.composite
def pairing(draw):
    """What `half_edge_pairing` takes."""
    return dict(**draw(any_degree()), seed=draw(seeds), draw=draw(st.integers(0, 3)))


@st.composite
def multigraph(draw):
    """Half-edges paired at random on a graph at most half full, so that swaps find a way."""
    tall, wide = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    parts = draw(st.integers(2, 6))
    degree = wide * draw(st.integers(0, parts // 2))
    generator = np.random.RandomState(draw(seeds))
    half_edges = generator.permutation(np.arange(parts * tall * degree) % (parts * wide))
    pairs = torch.from_numpy(half_edges).reshape(parts * tall, degree)
    return dict(pairs=pairs, channels=parts * wide, seed=draw(seeds), draw=draw(seeds))


@st.composite
def pieces(draw):
    """What `connecting_swaps` takes: rings and stars side by side, in any order of channels."""
    parts, tall, wide = (draw(st.integers(1, most)) for most in (4, 5, 5))
    degree, step = draw(st.integers(0, wide)), draw(st.integers(0, 2))
    token = torch.arange(parts * tall)
    near = (step * token[:, None] + torch.arange(degree)) % wide
    names = np.random.RandomState(draw(seeds)).permutation(parts * wide)
    pairs = torch.from_numpy(names)[near + wide * (token[:, None] // tall)]
    return dict(pairs=pairs, channels=parts * wide, seed=draw(seeds), draw=draw(seeds))


@st.composite
def edges(draw):
    """What `biadjacency` takes: repeated edges too."""
    x = draw(multigraph())
    return dict(pairs=x["pairs"], channels=x["channels"])


@st.composite
def any_mask(draw, least=0):
    """Any mask, empty ones and unconnected ones included."""
    return dict(mask=draw(booleans(draw(st.integers(least, 8)), draw(st.integers(least, 8)))))


@st.composite
def some_mask(draw):
    """Any mask, and now and then an expander."""
    return draw(any_mask()) if draw(st.booleans()) else dict(mask=draw(ramanujan()))


@st.composite
def ramanujan(draw):
    """A small Ramanujan mask: the complement of scattered diagonals of a complete graph."""
    parts = draw(st.integers(4, 7))
    rows = torch.arange(parts)
    shift = draw(st.integers(0, parts - 1))
    return (rows[:, None] - rows) % parts != shift


@st.composite
def graph(draw, most=7):
    """A small graph, loops included, with or without its second part."""
    size = draw(st.integers(2, most))
    half = draw(booleans(size, size))
    return dict(adjacency=half | half.T)


@st.composite
def gap(draw):
    """What `spectral_gap` takes."""
    flags = st.booleans()
    return dict(**draw(graph()), bipartite=draw(flags), two_sided=draw(flags))


@st.composite
def graph_and_subset(draw):
    """A graph and a set of its vertices that is not empty."""
    x = draw(graph())
    vertices = len(x["adjacency"])
    members = draw(st.sets(st.integers(0, vertices - 1), min_size=1))
    subset = torch.zeros(vertices, dtype=torch.bool)
    subset[sorted(members)] = True
    return dict(**x, subset=subset)


@st.composite
def covering(draw):
    """A mask and a permutation for each of its edges."""
    mask = draw(any_mask())["mask"]
    generator = np.random.RandomState(draw(seeds))
    keys = generator.random_sample((int(mask.sum()), draw(st.integers(1, 4))))
    return dict(mask=mask, permutations=torch.from_numpy(keys.argsort(-1)))


@st.composite
def lifting(draw):
    """What `ramanujan_lift` takes."""
    return dict(mask=draw(ramanujan()), sheets=draw(st.integers(1, 4)), seed=draw(seeds))


@st.composite
def rows(draw):
    """What `from_csr` takes."""
    mask = draw(any_mask())["mask"]
    counts = torch.cat([torch.zeros(1, dtype=torch.int64), mask.sum(1).cumsum(0)])
    return dict(offsets=counts, columns=mask.nonzero()[:, 1], channels=mask.shape[1])


bound = st.fixed_dictionaries(
    dict(token_degree=st.integers(1, 300), channel_degree=st.integers(1, 300))
)

INPUTS = dict(
    half_edge_pairing=pairing(),
    double_edge_swaps=multigraph(),
    connecting_swaps=pieces(),
    biadjacency=edges(),
    ramanujan_bound=bound,
    second_singular_value=some_mask(),
    is_ramanujan=some_mask(),
    bipartite_adjacency=some_mask(),
    component_count=some_mask(),
    is_connected=some_mask(),
    spectral_gap=gap(),
    vertex_expansion=graph_and_subset(),
    cheeger_constant=graph(),
    conductance=graph(),
    biregular_degrees=degrees(),
    random_expander=random_graph(),
    expander_mask=expander(),
    lift=covering(),
    new_singular_value=covering(),
    ramanujan_lift=lifting(),
    to_csr=any_mask(),
    from_csr=rows(),
)
