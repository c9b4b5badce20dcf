"""Vectorised PyTorch bodies: any device, no loops over tokens, heads or queries."""

from optimized.vector.coverage import (
    coverage,
    coverage_weights,
    gaussian_kernel,
    greedy,
    lazy_greedy,
    marginal_gain,
    overlap,
    window_kernel,
)
from optimized.vector.hubkv import discount, hub_mask, smd
from optimized.vector.locality import (
    autocorrelation,
    distance_profile,
    nms,
    random_order,
    retained_chains,
    segment_coverage,
    uniform_spread,
)

__all__ = [
    "autocorrelation",
    "coverage",
    "coverage_weights",
    "discount",
    "distance_profile",
    "gaussian_kernel",
    "greedy",
    "hub_mask",
    "lazy_greedy",
    "marginal_gain",
    "nms",
    "overlap",
    "random_order",
    "retained_chains",
    "segment_coverage",
    "smd",
    "uniform_spread",
    "window_kernel",
]
