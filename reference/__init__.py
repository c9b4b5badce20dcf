"""The three papers, equation by equation, in plain PyTorch.

Read in this order: `attention`, `retain`, `evict`, then one folder per paper.
`__all__` is the contract: `optimized` and every implementation under test offer these names.
"""

from reference.attention import attention, attention_error, attention_weights
from reference.evict import DenseCache, RaggedCache, evict, stored_bytes
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
]
