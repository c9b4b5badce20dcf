"""Pairings and swaps on whole arrays; random draws and graphs equal the reference's."""

import numpy as np
import torch
from torch import Tensor

from reference.hex.random_biregular import ROUNDS, still_repeated


def half_edge_pairing(
    tokens: int, channels: int, token_degree: int, seed: int, draw: int
) -> Tensor:
    return torch.from_numpy(pairing(tokens, channels, token_degree, seed, draw))


def pairing(tokens: int, channels: int, degree: int, seed: int, draw: int) -> np.ndarray:
    generator = np.random.RandomState([seed, draw, 0])
    order = generator.permutation(channels).astype(np.int64, copy=False)
    half_edges = np.resize(order, tokens * degree)
    generator.shuffle(half_edges)
    return half_edges.reshape(tokens, degree)


def double_edge_swaps(pairs: Tensor, channels: int, seed: int, draw: int) -> Tensor:
    repaired = swaps(in_rows(pairs), channels, seed, draw)
    return torch.from_numpy(repaired).to(pairs.device)


def in_rows(pairs: Tensor) -> np.ndarray:
    """Return pairs as a contiguous array, so that a flat view writes to them."""
    return pairs.contiguous().numpy(force=True)


def swaps(pairs: np.ndarray, channels: int, seed: int, draw: int) -> np.ndarray:
    generator = np.random.RandomState([seed, draw, 1])
    # an edge is one number; rows are sorted and in order, so the whole list is sorted
    edges = np.sort(pairs + channels * np.arange(len(pairs))[:, None], axis=1)
    flat = edges.reshape(-1)
    for _ in range(ROUNDS):
        repeated = np.flatnonzero(flat[1:] == flat[:-1]) + 1
        if not len(repeated):
            return edges % channels
        partners = generator.randint(0, len(flat), len(repeated), dtype=np.int64)
        changed = _exchange(flat, repeated, partners, channels)
        rows = np.unique(changed // edges.shape[1])
        edges[rows] = np.sort(edges[rows], axis=1)
    still_repeated()


def _exchange(
    flat: np.ndarray, repeated: np.ndarray, partners: np.ndarray, channels: int
) -> np.ndarray:
    """Apply the proposals of one round that do not conflict; return the edges they changed."""
    ends, others = flat[repeated] % channels, flat[partners] % channels
    first, second = flat[repeated] - ends + others, flat[partners] - others + ends
    made = np.concatenate([first, second])
    fresh = flat[np.searchsorted(flat, made).clip(max=len(flat) - 1)] != made
    fine = _once(np.concatenate([repeated, partners])) & _once(made) & fresh
    done = fine[: len(repeated)] & fine[len(repeated) :]
    flat[repeated[done]], flat[partners[done]] = first[done], second[done]
    return np.concatenate([repeated[done], partners[done]])


def _once(values: np.ndarray) -> np.ndarray:
    """Return the mask of values that occur once."""
    _, which, count = np.unique(values, return_inverse=True, return_counts=True)
    return count[which] == 1


def connecting_swaps(pairs: Tensor, channels: int, seed: int, draw: int) -> Tensor:
    joined = connect(in_rows(pairs.sort(1).values), channels, seed, draw)
    return torch.from_numpy(joined).to(pairs.device)


def connect(pairs: np.ndarray, channels: int, seed: int, draw: int) -> np.ndarray:
    if _hangs_together(pairs, channels):
        return pairs
    generator = np.random.RandomState([seed, draw, 4])
    tokens = np.arange(pairs.size) // max(1, pairs.shape[1])
    while not _hangs_together(pairs, channels):
        flat = pairs.reshape(-1)
        order = generator.permutation(pairs.size)
        component, redundant = _cycles(tokens[order], len(pairs) + flat[order])
        apart = (
            np.flatnonzero(component != component[redundant[0]]) if len(redundant) else redundant
        )
        if not len(apart):
            break
        swapped = order[[redundant[0], apart[0]]]
        flat[swapped] = flat[swapped[::-1]]
        pairs = np.sort(pairs, axis=1)
    return pairs


def _hangs_together(pairs: np.ndarray, channels: int) -> bool:
    """Whether every channel is connected to the first token."""
    reached = np.zeros(channels, bool)
    reached[pairs[:1]] = True
    before, count, size = -1, np.count_nonzero(reached), 8
    while count < channels and (before < count or size < len(pairs)):
        before, size = count, 8 * size  # the first tokens may reach all channels
        leading = pairs[:size]
        reached[leading[reached[leading].any(1)]] = True
        count = np.count_nonzero(reached)
    return count == channels


def _cycles(tokens: np.ndarray, channels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the component of each edge, and which edges close a cycle with those before them."""
    from scipy.sparse import coo_array  # scipy.sparse takes half a second to import
    from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

    size = int(channels.max(initial=0)) + 1
    _, first = np.unique(tokens * size + channels, return_index=True)
    # the minimum spanning forest holds an edge unless it closes a cycle with lighter ones
    parts = (first + 1.0, (tokens[first], channels[first]))
    graph = coo_array(parts, shape=(size, size)).tocsr()
    forest = minimum_spanning_tree(graph).data.astype(np.int64) - 1
    _, component = connected_components(graph, directed=False)
    return component[tokens], np.delete(np.arange(len(tokens)), forest)


def biadjacency(pairs: Tensor, channels: int) -> Tensor:
    mask = torch.zeros(pairs.shape[0], channels, dtype=torch.bool, device=pairs.device)
    return mask.scatter_(1, pairs, True)
