"""Random biregular graphs: half-edges paired at random, made simple and connected by swaps."""

from collections import Counter
from typing import NoReturn

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from reference.contract.enforce import requires
from reference.contract.preconditions import indexing, nonnegative_at_most
from reference.contract.types import Positive, Seed, Whole

ROUNDS = 1000


def simple(channels: int, token_degree: int) -> None:
    """Refuse more half-edges of a token than there are channels."""
    nonnegative_at_most("token_degree", token_degree, channels)


def ends_in_channels(pairs: Tensor, channels: int) -> None:
    """Refuse half-edges that end in no channel."""
    indexing("pairs", pairs, channels)


@requires(simple)
def half_edge_pairing(
    tokens: Whole, channels: Positive, token_degree: Whole, seed: Seed = 0, draw: Seed = 0
) -> Int64[Tensor, "tokens degree"]:
    r"""Pair every half-edge of a token with a half-edge of a channel, uniformly at random.

    $$\pi \sim \mathrm{Uniform}(S_{n d_1}), \qquad
      \text{half-edge } e \text{ of the tokens} \;\longleftrightarrow\;
      \text{half-edge } \pi(e) \text{ of the channels}$$

    Args:
        tokens: number of tokens $n$.
        channels: number of channels $d$.
        token_degree: half-edges $d_1$ of each token, in [0, channels]. The channels share the
            $n d_1$ half-edges evenly; where they do not divide, a random few hold one more.
        seed: names the random stream.
        draw: number of this draw within the stream.

    Returns:
        The channel at the other end of each half-edge of each token. Degrees are exact, but a
        channel may occur twice in a row: the pairing is a multigraph.

    Source:
        HEX-A.2a. In words (A.2): "each vertex in the left and right partitions is assigned $d_1$
        and $d_2$ half-edges respectively, and a uniform random perfect matching between half-edges
        is drawn."

    Reading:
        E-H3: the pairing alone is not biregular as a mask of zeros and ones;
        `double_edge_swaps` makes it so.
    """
    # numpy promises that the streams of RandomState never change; those of Generator may
    generator = np.random.RandomState([seed, draw, 0])
    order = generator.permutation(channels)
    half_edges = np.array([order[i % channels] for i in range(tokens * token_degree)], np.int64)
    paired = generator.permutation(half_edges)
    return torch.from_numpy(paired).reshape(tokens, token_degree)


@requires(ends_in_channels)
def double_edge_swaps(
    pairs: Int64[Tensor, "tokens degree"],
    channels: Positive,  # noqa: ARG001 the contract reads it
    seed: Seed = 0,
    draw: Seed = 0,
) -> Int64[Tensor, "tokens degree"]:
    r"""Swap the ends of repeated edges with those of random edges until no edge repeats.

    $$(t, c),\, (t', c') \;\longrightarrow\; (t, c'),\, (t', c)$$

    In each round every edge that repeats another of its token proposes a swap with an edge drawn
    at random. A proposal is carried out if both new edges are absent from the graph and no other
    proposal of the round touches the same edge or makes the same new one.

    Args:
        pairs: the channels of each token, in [0, channels), as `half_edge_pairing` draws them.
        channels: number of channels $d$.
        seed: names the random stream.
        draw: number of this draw within the stream.

    Returns:
        Pairs without repetition, each token's channels ascending. Every token and every channel
        keeps its degree.

    Raises:
        RuntimeError: a thousand rounds were not enough. Where no degree exceeds half the other
            side there always is a swap to find.

    Source:
        HEX-A.3a. In words (A.3): "fast duplicate elimination and localized double-edge swaps that
        enforce simplicity and connectivity". Which edges swap is ours (E-H3).

    Reading:
        E-H3: swaps are needed for biregularity; the paper has them only as an optimisation.
    """
    generator = np.random.RandomState([seed, draw, 1])
    degree = pairs.shape[1]
    rows = [sorted(row) for row in pairs.tolist()]
    for _ in range(ROUNDS):
        edges = [(t, c) for t, row in enumerate(rows) for c in row]
        repeated = [e for e in range(1, len(edges)) if edges[e] == edges[e - 1]]
        if not repeated:
            return torch.tensor(rows, dtype=torch.int64, device=pairs.device).reshape(pairs.shape)
        partners = generator.randint(0, len(edges), len(repeated), dtype=np.int64).tolist()
        proposals = list(zip(repeated, partners, strict=True))
        touched = Counter(repeated + partners)
        made = Counter(edge for e, f in proposals for edge in crossed(edges[e], edges[f]))
        present = set(edges)
        for e, f in proposals:
            first, second = crossed(edges[e], edges[f])
            alone = touched[e] == touched[f] == 1 and made[first] == made[second] == 1
            if alone and first not in present and second not in present:
                rows[e // degree][e % degree] = edges[f][1]
                rows[f // degree][f % degree] = edges[e][1]
        rows = [sorted(row) for row in rows]
    still_repeated()


def still_repeated() -> NoReturn:
    """Give up swapping."""
    raise RuntimeError(f"pairs still repeat an edge after {ROUNDS} rounds of swaps")


@requires(ends_in_channels)
def connecting_swaps(
    pairs: Int64[Tensor, "tokens degree"],
    channels: Positive,  # noqa: ARG001 the contract reads it
    seed: Seed = 0,
    draw: Seed = 0,
) -> Int64[Tensor, "tokens degree"]:
    r"""Swap the ends of edges of two components until the graph hangs together.

    $$(t, c),\, (t', c') \;\longrightarrow\; (t, c'),\, (t', c)$$

    In each step all edges are put in a random order. The first that closes a cycle with those
    before it swaps with the first of another component: one component less.

    Args:
        pairs: the channels of each token, in [0, channels), as `double_edge_swaps` leaves them.
        channels: number of channels $d$.
        seed: names the random stream.
        draw: number of this draw within the stream.

    Returns:
        Pairs of a graph with as few components as its degrees allow, each token's channels
        ascending. Every token and every channel keeps its degree, and no edge repeats that did
        not before.

    Source:
        HEX-A.3a. In words (A.3): "fast duplicate elimination and localized double-edge swaps that
        enforce simplicity and connectivity". Which edges swap is ours (E-H3).

    Reading:
        E-H3: which edges swap is not said.
    """
    generator = np.random.RandomState([seed, draw, 4])
    degree = pairs.shape[1]
    rows = [sorted(row) for row in pairs.tolist()]
    while True:
        edges = [(t, c) for t, row in enumerate(rows) for c in row]
        order = generator.permutation(len(edges)).tolist()
        redundant, component = cycles(edges, order)
        apart = [f for f in order if redundant and component[f] is not component[redundant[0]]]
        if not apart:
            return torch.tensor(rows, dtype=torch.int64, device=pairs.device).reshape(pairs.shape)
        e, f = redundant[0], apart[0]
        rows[e // degree][e % degree] = edges[f][1]
        rows[f // degree][f % degree] = edges[e][1]
        rows = [sorted(row) for row in rows]


def crossed(edge: tuple[int, int], other: tuple[int, int]) -> list[tuple[int, int]]:
    """Return two edges with their channels exchanged."""
    return [(edge[0], other[1]), (other[0], edge[1])]


def cycles(
    edges: list[tuple[int, int]], order: list[int]
) -> tuple[list[int], list[set[tuple[str, int]]]]:
    """Return which edges close a cycle with those before them, and the component of each edge."""
    component: dict[tuple[str, int], set[tuple[str, int]]] = {}
    redundant = []
    for e in order:
        ends = ("token", edges[e][0]), ("channel", edges[e][1])
        small, large = sorted((component.setdefault(end, {end}) for end in ends), key=len)
        if small is large:
            redundant.append(e)
            continue
        large |= small
        component.update(dict.fromkeys(small, large))
    return redundant, [component["token", token] for token, _ in edges]


@requires(ends_in_channels)
def biadjacency(
    pairs: Int64[Tensor, "tokens degree"], channels: Positive
) -> Bool[Tensor, "tokens channels"]:
    r"""Write the pairs as a mask: the biadjacency matrix of the bipartite graph.

    $$B_{t,c} = \mathbb{I}\bigl((t, c) \in E\bigr)$$

    Args:
        pairs: the channels of each token, in [0, channels).
        channels: number of channels $d$.

    Returns:
        The mask $B$. A repeated edge leaves one mark: the row then falls short of its degree.

    Source:
        HEX-3.2a. In words (§3.2): "We view the cache matrix $K \in \mathbb{R}^{n \times d}$ as the
        biadjacency of a bipartite graph $G = (U, V, E)$".
    """
    mask = torch.zeros(pairs.shape[0], channels, dtype=torch.bool, device=pairs.device)
    for token, row in enumerate(pairs.tolist()):
        mask[token, row] = True
    return mask
