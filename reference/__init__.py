"""The three papers, equation by equation, in plain PyTorch.

Read in this order: `attention`, `retain`, `evict`, then one folder per paper.
`__all__` is the contract: `optimized` and every implementation under test offer these names.
"""

from reference.attention import attention, attention_error, attention_weights
from reference.evict import DenseCache, RaggedCache, evict, stored_bytes
from reference.graphkv.decay import banish, decay, enhance
from reference.graphkv.graph import (
    edges,
    neighbour_count,
    neighbours,
    source_count,
    source_tokens,
)
from reference.graphkv.keys import (
    CosineDistribution,
    cosine_distribution,
    cosine_matrix,
    kv_bytes,
    principal_components,
)
from reference.graphkv.refine import concatenate_heads, graphkv_refine
from reference.hubkv.discount import discount, hub_mask, smd
from reference.retain import kept_count, modular_utility, ranking, retain

__all__ = [
    # reference.attention
    "attention_weights",
    "attention",
    "attention_error",
    # reference.retain
    "kept_count",
    "ranking",
    "retain",
    "modular_utility",
    # reference.evict
    "DenseCache",
    "RaggedCache",
    "evict",
    "stored_bytes",
    # reference.hubkv.discount
    "hub_mask",
    "discount",
    "smd",
    # reference.graphkv.graph
    "source_count",
    "source_tokens",
    "edges",
    "neighbour_count",
    "neighbours",
    # reference.graphkv.decay
    "decay",
    "enhance",
    "banish",
    # reference.graphkv.refine
    "concatenate_heads",
    "graphkv_refine",
    # reference.graphkv.keys
    "cosine_matrix",
    "CosineDistribution",
    "cosine_distribution",
    "principal_components",
    "kv_bytes",
]
