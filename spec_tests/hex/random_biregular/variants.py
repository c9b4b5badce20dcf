"""Other correct ways to pair half-edges, and to repair the resulting graph."""

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from spec_tests.variants.registry import register_variant


@register_variant("half_edge_pairing")
def by_sorted_keys(tokens, channels, token_degree, seed=0, draw=0):
    """Order the half-edges of the channels by random keys of PyTorch."""
    generator = torch.Generator().manual_seed(1_000_003 * draw + seed)
    edges = tokens * token_degree
    names = torch.randperm(channels, generator=generator)
    ends = names.repeat(edges // channels + 1)[:edges]
    order = torch.rand(edges, generator=generator, dtype=torch.float64).argsort()
    return ends[order].reshape(tokens, token_degree)


@register_variant("double_edge_swaps")
def one_at_a_time(pairs, channels, seed=0, draw=0):
    """Swap a repeated edge with a random one, until no edge repeats."""
    generator = np.random.default_rng([seed, draw])
    rows = pairs.tolist()
    degree = pairs.shape[1]
    for t, row in enumerate(rows):
        while len(set(row)) < degree:
            i = next(i for i in range(degree) if row[i] in row[:i])
            u, j = int(generator.integers(len(rows))), int(generator.integers(degree))
            other = rows[u]
            if u != t and other[j] not in row and row[i] not in other:
                row[i], other[j] = other[j], row[i]
    return torch.tensor([sorted(row) for row in rows], dtype=torch.int64).reshape(pairs.shape)


def components(rows, channels):
    """Return the component of each token."""
    edges = [(t, c) for t, row in enumerate(rows) for c in row]
    at, to = np.array(edges, np.int64).reshape(-1, 2).T
    size = len(rows) + channels
    graph = coo_array((np.ones(len(edges)), (at, len(rows) + to)), shape=(size, size))
    return connected_components(graph, directed=False)


def joining(rows, channels, generator):
    """Return an edge whose removal disconnects nothing and one of another component, or None."""
    count, labels = components(rows, channels)
    edges = [(t, i) for t, row in enumerate(rows) for i in range(len(row))]
    edges = [edges[k] for k in generator.permutation(len(edges))]
    for t, i in edges:
        without = [[c for j, c in enumerate(r) if (u, j) != (t, i)] for u, r in enumerate(rows)]
        if components(without, channels)[0] == count:
            return next((((t, i), (u, j)) for u, j in edges if labels[u] != labels[t]), None)
    return None


@register_variant("connecting_swaps")
def swap_edge_by_edge(pairs, channels, seed=0, draw=0):
    """Swap an edge whose removal disconnects nothing with one of another component."""
    generator = np.random.default_rng([seed, draw])
    rows = pairs.tolist()
    while swap := joining(rows, channels, generator):
        (t, i), (u, j) = swap
        rows[t][i], rows[u][j] = rows[u][j], rows[t][i]
    return torch.tensor([sorted(row) for row in rows], dtype=torch.int64).reshape(pairs.shape)


@register_variant("biadjacency")
def by_comparison(pairs, channels):
    """Connect a token to a channel if one of its pairs is that channel."""
    return (pairs[:, :, None] == torch.arange(channels, device=pairs.device)).any(1)


@register_variant("biadjacency")
def by_counting(pairs, channels):
    """Count the edges between each token and each channel."""
    cells = pairs + channels * torch.arange(len(pairs), device=pairs.device)[:, None]
    counts = torch.bincount(cells.flatten(), minlength=len(pairs) * channels)
    return counts.reshape(len(pairs), channels) > 0
