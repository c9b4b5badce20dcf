"""Other correct ways to compute expansion, conductance and the spectral gap."""

import numpy as np

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
