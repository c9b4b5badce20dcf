"""The three papers, equation by equation, in plain PyTorch.

Read in this order: `attention`, `retain`, `evict`, then one folder per paper.
`__all__` is the contract: `optimized` and every implementation under test offer these names.
"""

from reference.hubkv.discount import discount, hub_mask, smd

__all__ = [
    # reference.hubkv.discount
    "hub_mask",
    "discount",
    "smd",
]
