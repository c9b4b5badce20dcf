"""Other correct ways to write the kernels of coverage."""

import math

import torch

from spec_tests.variants.registry import register_variant


@register_variant("window_kernel")
def ones_then_zeros(tokens, radius, dtype=torch.float32):
    """Concatenate ones up to the radius, and zeros."""
    ones = min(tokens, radius + 1)
    return torch.cat([torch.ones(ones, dtype=dtype), torch.zeros(tokens - ones, dtype=dtype)])


@register_variant("window_kernel", "values")
def by_comparison(tokens, radius, dtype=torch.float32):
    """Compare distances."""
    return (torch.arange(tokens) <= radius).to(dtype)


@register_variant("gaussian_kernel")
def number_by_number(tokens, deviation, dtype=torch.float32):
    """Compute exponentials in Python."""
    return torch.tensor([math.exp(-0.5 * (d / deviation) ** 2) for d in range(tokens)], dtype=dtype)


@register_variant("gaussian_kernel", "values")
def in_single(tokens, deviation, dtype=torch.float32):
    """Compute the paper's formula in the kernel's own dtype."""
    d = torch.arange(tokens, dtype=dtype)
    return torch.exp(-(d**2) / (2 * deviation**2))
