"""Other correct ways to compute expansion, conductance and the spectral gap."""

from itertools import product

import numpy as np
import torch

from spec_tests.numpy_adapter import among_tensors
from spec_tests.variants.registry import register_variant


@register_variant("spectral_gap")
@among_tensors
def by_numpy(adjacency, bipartite=False, two_sided=False):
    """Use NumPy's eigenvalues, smallest first."""
    values = np.linalg.eigvalsh(adjacency.astype(np.float64))
    other = values[1 if bipartite else 0]
    other = abs(other) if two_sided else other
    return float(min(abs(values[-1] - values[-2]), abs(values[-1] - other)))


@register_variant("vertex_expansion")
def by_products(adjacency, subset):
    """An outside vertex has a neighbour inside if the product is not 0."""
    reached = adjacency.double() @ subset.double() > 0
    return float((reached & ~subset).sum() / subset.sum().double())


def every_set(adjacency):
    """Return all sets of vertices, one a row."""
    return torch.tensor(list(product([False, True], repeat=len(adjacency))))


@register_variant("cheeger_constant")
def of_all_sets(adjacency):
    """Compute the boundary of all sets at once."""
    sets = every_set(adjacency)
    size = sets.sum(1)
    boundary = ((sets.double() @ adjacency.double() > 0) & ~sets).sum(1)
    fine = (size > 0) & (2 * size <= len(adjacency))
    return (boundary[fine] / size[fine].double()).min().item()


@register_variant("conductance")
def of_all_cuts(adjacency):
    """Compute the cut of all sets at once: their volume minus the edges inside."""
    sets, edges = every_set(adjacency).double(), adjacency.double()
    volume = sets @ edges.sum(1)
    within = torch.einsum("si,ij,sj->s", sets, edges, sets)
    fine = (volume > 0) & (2 * volume <= edges.sum())
    return ((volume - within)[fine] / volume[fine]).min().item() if fine.any() else 0.0
