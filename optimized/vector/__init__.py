"""Vectorised PyTorch bodies: any device, no loops over tokens, heads or queries."""

from optimized.vector._graphkv_keys import (
    cosine_distribution,
    cosine_matrix,
    kv_bytes,
    principal_components,
)
from optimized.vector._graphkv_refine import concatenate_heads, graphkv_refine
from optimized.vector.attention import attention, attention_error, attention_weights
from optimized.vector.coverage import (
    coverage,
    coverage_weights,
    greedy,
    lazy_greedy,
    marginal_gain,
    overlap,
    window_kernel,
)
from optimized.vector.evict import DenseCache, RaggedCache, evict, stored_bytes
from optimized.vector.graphkv import (
    banish,
    decay,
    edges,
    enhance,
    neighbour_count,
    neighbours,
    source_count,
    source_tokens,
)
from optimized.vector.hubkv import discount, hub_mask, smd
from optimized.vector.hubkv_budgets import head_budgets
from optimized.vector.hubkv_calibration import head_weights, selectivity
from optimized.vector.hubkv_refine import hubkv_refine, ungated_refine
from optimized.vector.locality import (
    autocorrelation,
    distance_profile,
    nms,
    retained_chains,
    segment_coverage,
    uniform_spread,
)
from optimized.vector.retain import kept_count, modular_utility, ranking, retain
from reference.hubkv.calibration import calibrate
from reference.hubkv.coverage import gaussian_kernel
from reference.hubkv.gate import gate
from reference.hubkv.locality import random_order
from reference.hubkv.refine import protected_mask, shift_scores

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
    "calibrate",
    "gate",
    "head_budgets",
    "head_weights",
    "hubkv_refine",
    "protected_mask",
    "selectivity",
    "shift_scores",
    "ungated_refine",
    "banish",
    "concatenate_heads",
    "cosine_distribution",
    "cosine_matrix",
    "decay",
    "edges",
    "enhance",
    "graphkv_refine",
    "kv_bytes",
    "neighbour_count",
    "neighbours",
    "principal_components",
    "source_count",
    "source_tokens",
]
