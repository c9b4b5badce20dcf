"""Other correct ways to test whether a mask is connected."""

import numpy as np
import torch

from spec_tests.numpy_adapter import among_tensors
from spec_tests.variants.registry import register_variant


@register_variant("bipartite_adjacency")
@among_tensors
def by_blocks(mask):
    """Build the adjacency matrix of four blocks."""
    tokens, channels = mask.shape
    none = np.zeros((tokens, tokens), bool), np.zeros((channels, channels), bool)
    return np.block([[none[0], mask], [mask.T, none[1]]])


@register_variant("is_connected")
def by_spreading(mask):
    """Spread from the first vertex until no new vertex is found."""
    if not sum(mask.shape):
        return False
    adjacency = by_blocks(mask)
    reached = new = torch.arange(len(adjacency)) == 0
    while new.any():
        new = adjacency[new].any(0) & ~reached
        reached = reached | new
    return bool(reached.all())
