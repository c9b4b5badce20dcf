"""Vectorised PyTorch bodies: any device, no loops over tokens, heads or queries."""

from optimized.vector.attention import attention, attention_error, attention_weights
from optimized.vector.coverage import coverage, coverage_weights, gaussian_kernel, greedy, lazy_greedy, marginal_gain, overlap, window_kernel
from optimized.vector.evict import DenseCache, RaggedCache, evict, stored_bytes
from optimized.vector.hubkv import discount, hub_mask, smd
from optimized.vector.locality import autocorrelation, distance_profile, nms, random_order, retained_chains, segment_coverage, uniform_spread
from optimized.vector.retain import kept_count, modular_utility, ranking, retain

__all__ = [
    "attention_weights",
    "attention",
    "attention_error",
    "kept_count",
    "ranking",
    "retain",
    "modular_utility",
    "DenseCache",
    "RaggedCache",
    "evict",
    "stored_bytes",
    "hub_mask",
    "discount",
    "smd",
    "autocorrelation",
    "coverage",
    "coverage_weights",
    "distance_profile",
    "gaussian_kernel",
    "greedy",
    "lazy_greedy",
    "marginal_gain",
    "nms",
    "overlap",
    "random_order",
    "retained_chains",
    "segment_coverage",
    "uniform_spread",
    "window_kernel",
]
