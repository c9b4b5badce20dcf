"""The three papers, equation by equation, in plain PyTorch.

Read in this order: `attention`, `retain`, `evict`, then one folder per paper.
`__all__` is the contract: `optimized` and every implementation under test offer these names.
"""

from reference.hubkv.budgets import head_budgets, ungated_refine
from reference.hubkv.calibration import calibrate, head_weights, selectivity
from reference.hubkv.discount import discount, hub_mask, smd
from reference.hubkv.gate import gate
from reference.hubkv.refine import hubkv_refine, protected_mask, shift_scores

__all__ = [
    # reference.hubkv.discount
    "hub_mask",
    "discount",
    "smd",
    # reference.hubkv.calibration
    "selectivity",
    "head_weights",
    "calibrate",
    # reference.hubkv.gate
    "gate",
    # reference.hubkv.refine
    "protected_mask",
    "hubkv_refine",
    "shift_scores",
    # reference.hubkv.budgets
    "ungated_refine",
    "head_budgets",
]
