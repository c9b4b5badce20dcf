"""Vectorised PyTorch bodies: any device, no loops over tokens, heads or queries."""

from optimized.vector._graphkv_keys import (
    cosine_distribution,
    cosine_matrix,
    kv_bytes,
    principal_components,
)
from optimized.vector._graphkv_refine import concatenate_heads, graphkv_refine
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

__all__ = [
    "banish",
    "concatenate_heads",
    "cosine_distribution",
    "cosine_matrix",
    "decay",
    "discount",
    "edges",
    "enhance",
    "graphkv_refine",
    "hub_mask",
    "kv_bytes",
    "neighbour_count",
    "neighbours",
    "principal_components",
    "smd",
    "source_count",
    "source_tokens",
]
