"""Other correct ways to compute the second singular value, and the bound."""

import numpy as np
import torch

from spec_tests.numpy_adapter import among_tensors
from spec_tests.variants.registry import register_variant


@register_variant("ramanujan_bound")
def by_powers(token_degree, channel_degree):
    """Use powers of one half."""
    return (channel_degree - 1) ** 0.5 + (token_degree - 1) ** 0.5


@register_variant("second_singular_value")
def of_the_bipartite_graph(mask):
    """Take the second eigenvalue of the adjacency matrix of all vertices."""
    if min(mask.shape) < 2:
        return 0.0
    x = mask.double()
    above = torch.cat([x.new_zeros(len(x), len(x)), x], 1)
    below = torch.cat([x.T, x.new_zeros(x.shape[1], x.shape[1])], 1)
    return max(0.0, torch.linalg.eigvalsh(torch.cat([above, below]))[-2].item())


@register_variant("second_singular_value", "values")
@among_tensors
def by_numpy(mask):
    """Use NumPy's singular values."""
    values = np.linalg.svd(mask.astype(np.float64), compute_uv=False)
    return float(values[1]) if len(values) > 1 else 0.0


@register_variant("is_ramanujan")
def by_definition(mask):
    """Test the degrees, then the bound."""
    tokens, channels = mask.sum(1), mask.sum(0)
    if not mask.numel() or tokens.min() != tokens.max() or channels.min() != channels.max():
        return False
    d1, d2 = int(tokens[0]), int(channels[0])
    bound = max(d1 - 1, 0) ** 0.5 + max(d2 - 1, 0) ** 0.5
    return min(d1, d2) >= 3 and by_numpy(mask) <= bound * (1 + 1e-12)
