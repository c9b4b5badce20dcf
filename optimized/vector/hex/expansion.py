"""Expansion and conductance, by arrays over all subsets of vertices as bit patterns."""

import numpy as np
from torch import Tensor


def vertex_expansion(adjacency: Tensor, subset: Tensor) -> float:
    boundary = adjacency[subset].any(0) & ~subset
    return int(boundary.sum()) / int(subset.sum())


def cheeger_constant(adjacency: Tensor) -> float:
    neighbours = _bits(adjacency)
    sets = np.arange(1 << len(neighbours))
    reached = np.zeros(1, np.int64)
    for near in neighbours:
        reached = np.concatenate([reached, reached | near])
    size = np.bitwise_count(sets)
    small = (size > 0) & (2 * size.astype(int) <= len(neighbours))
    return float((np.bitwise_count(reached & ~sets)[small] / size[small]).min())


def conductance(adjacency: Tensor) -> float:
    neighbours = _bits(adjacency)
    degrees = np.bitwise_count(neighbours).astype(np.int64)
    volume, within = np.zeros(1, np.int64), np.zeros(1, np.int64)
    # the sets with a vertex follow those without it; `within` counts ends of inner edges
    for near, degree in zip(neighbours, degrees, strict=True):
        inner = np.bitwise_count(np.arange(len(within)) & near).astype(np.int64)
        # a loop has one end in the adjacency matrix
        loop = int(near >> (len(within).bit_length() - 1) & 1)
        within = np.concatenate([within, within + 2 * inner + loop])
        volume = np.concatenate([volume, volume + degree])
    small = (volume > 0) & (2 * volume <= degrees.sum())
    cut = volume - within
    return float((cut[small] / volume[small]).min()) if small.any() else 0.0


def _bits(adjacency: Tensor) -> np.ndarray:
    """Return each vertex's neighbours as a bit pattern."""
    rows = adjacency.cpu().numpy().astype(np.int64)
    return rows @ (1 << np.arange(rows.shape[1]))
