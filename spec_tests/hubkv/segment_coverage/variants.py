"""Other correct ways to count covered segments."""

import numpy as np
import torch

from spec_tests.variants.registry import register_variant


@register_variant("random_order")
def by_shuffling(tokens, seed):
    """Shuffle the positions with NumPy's legacy generator."""
    order = np.arange(tokens)
    np.random.RandomState(seed).shuffle(order)
    return torch.from_numpy(order)
