"""Vectorised PyTorch bodies: any device, no loops over tokens, heads or queries."""

from optimized.vector.attention import attention, attention_error, attention_weights
from optimized.vector.evict import DenseCache, RaggedCache, evict, stored_bytes
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
]
