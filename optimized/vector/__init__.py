"""Vectorised PyTorch bodies: any device, no loops over tokens, heads or queries."""

from optimized.vector._graphkv_keys import (
    cosine_distribution,
    cosine_matrix,
    kv_bytes,
    principal_components,
)
from optimized.vector._graphkv_refine import concatenate_heads, graphkv_refine
from optimized.vector.attention import attention, attention_error, attention_weights
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
    "source_count",
    "source_tokens",
    "edges",
    "neighbour_count",
    "neighbours",
    "decay",
    "enhance",
    "banish",
    "concatenate_heads",
    "graphkv_refine",
    "cosine_matrix",
    "cosine_distribution",
    "principal_components",
    "kv_bytes",
]
