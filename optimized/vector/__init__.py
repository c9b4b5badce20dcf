"""Vectorised PyTorch bodies: any device, no loops over tokens, heads or queries."""

from optimized.vector.hubkv import discount, hub_mask, smd

__all__ = ["discount", "hub_mask", "smd"]
