"""Components, expansion and conductance: every set of vertices is a bit pattern."""

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from optimized.vector.spectrum import Graph


def component_count(mask: Bool[Tensor, "tokens channels"]) -> int:
    return Graph.of(mask).component_count()


def is_connected(mask: Bool[Tensor, "tokens channels"]) -> bool:
    return Graph.of(mask).component_count() == 1


def bipartite_adjacency(
    mask: Bool[Tensor, "tokens channels"],
) -> Bool[Tensor, "vertices vertices"]:
    tokens, channels = mask.shape
    above = torch.cat([mask.new_zeros(tokens, tokens), mask], 1)
    below = torch.cat([mask.T, mask.new_zeros(channels, channels)], 1)
    return torch.cat([above, below])


def spectral_gap(
    adjacency: Bool[Tensor, "vertices vertices"], bipartite: bool = False, two_sided: bool = False
) -> float:
    values = torch.linalg.eigvalsh(adjacency.double()).numpy(force=True)
    first, last = values[-1], values[1 if bipartite else 0]
    other = abs(last) if two_sided else last
    return float(min(abs(first - values[-2]), abs(first - other)))


def vertex_expansion(
    adjacency: Bool[Tensor, "vertices vertices"], subset: Bool[Tensor, "vertices"]
) -> float:
    boundary = adjacency[subset].any(0) & ~subset
    return int(boundary.sum()) / int(subset.sum())


def cheeger_constant(adjacency: Bool[Tensor, "vertices vertices"]) -> float:
    neighbours = _bits(adjacency)
    sets = np.arange(1 << len(neighbours))
    reached = np.zeros(1, np.int64)
    for near in neighbours:
        reached = np.concatenate([reached, reached | near])
    size = np.bitwise_count(sets)
    small = (size > 0) & (2 * size.astype(int) <= len(neighbours))
    return float((np.bitwise_count(reached & ~sets)[small] / size[small]).min())


def conductance(adjacency: Bool[Tensor, "vertices vertices"]) -> float:
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
    """Return each vertex's neighbours as one number."""
    rows = adjacency.cpu().numpy().astype(np.int64)
    return rows @ (1 << np.arange(rows.shape[1]))
