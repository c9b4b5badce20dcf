"""Vectorised PyTorch bodies: any device, no loops over tokens, heads or queries."""

from optimized.vector.hubkv import discount, hub_mask, smd
from optimized.vector.hubkv_budgets import head_budgets
from optimized.vector.hubkv_calibration import head_weights, selectivity
from optimized.vector.hubkv_refine import hubkv_refine, ungated_refine
from reference.hubkv.calibration import calibrate
from reference.hubkv.gate import gate
from reference.hubkv.refine import protected_mask, shift_scores

__all__ = [
    "discount",
    "hub_mask",
    "smd",
    "calibrate",
    "gate",
    "head_budgets",
    "head_weights",
    "hubkv_refine",
    "protected_mask",
    "selectivity",
    "shift_scores",
    "ungated_refine",
]
