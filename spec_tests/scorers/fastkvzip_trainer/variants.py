"""The trainer with other random numbers."""

import torch

import reference
from spec_tests.variants.registry import register_variant


@register_variant("FastKVzipGate")
def gate(hidden, kv_heads, group, dim=16, learned=16, seed=0, dtype=torch.float32, spread=0.0):
    """Return the gate of another seed."""
    return reference.FastKVzipGate(hidden, kv_heads, group, dim, learned, seed + 1, dtype, spread)


@register_variant("train_fastkvzip")
def with_another_seed(
    hidden, targets, group, steps=5000, rate=0.2, momentum=0.9, sample=1000, dim=16, learned=16,
    seed=0, epsilon=1e-6, valid=None, spread=0.0,
):  # fmt: skip
    """Train from another seed."""
    return reference.train_fastkvzip(
        hidden, targets, group, steps, rate, momentum, sample, dim, learned, seed + 1, epsilon,
        valid, spread,
    )  # fmt: skip
