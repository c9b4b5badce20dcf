"""Other ways to mark outliers."""

import math
from fractions import Fraction

import numpy as np

from spec_tests.numpy_adapter import among_tensors
from spec_tests.variants.registry import register_variant


@register_variant("outlier_mask")
def by_rank(x, ratio=0.02):
    """Rank all members, with the earlier of equals first."""
    count = math.floor(Fraction(str(ratio)) * x.shape[-1] / 2)
    rank = (-x).argsort(dim=-1, stable=True).argsort(dim=-1)
    return (rank < count) | (rank >= x.shape[-1] - count)


@register_variant("outlier_mask", "values")
@among_tensors
def with_numpy(x, ratio=0.02):
    """Sort by value, then by place."""
    count = math.floor(Fraction(str(ratio)) * x.shape[-1] / 2)
    order = np.lexsort((np.broadcast_to(np.arange(x.shape[-1]), x.shape), -x), axis=-1)
    mask = np.zeros(x.shape, bool)
    np.put_along_axis(mask, order[..., :count], True, -1)
    np.put_along_axis(mask, order[..., x.shape[-1] - count :], True, -1)
    return mask
