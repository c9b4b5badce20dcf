"""The outlier mask by a partial sort of each end."""

import numpy as np
import torch
from torch import Tensor

from optimized.vector._by_numpy import array, on_cpu
from optimized.vector.retain import largest, sortable, untied
from reference.quantizers.outliers import outliers_per_end

MEMBERS = 1 << 18
"""Members at a time, so that intermediate results fit into a CPU's cache."""


def outlier_mask(x: Tensor, ratio: float) -> Tensor:
    count = outliers_per_end(x.shape[-1], ratio)
    if not count:
        return torch.zeros_like(x, dtype=torch.bool)
    if not on_cpu(x):
        return both_ends(x, count)
    mask = torch.empty(x.shape, dtype=torch.bool)
    both = x.reshape(-1, x.shape[-1]), mask.view(-1, x.shape[-1])
    parts = (part.split(max(1, MEMBERS // x.shape[-1])) for part in both)
    for part, into in zip(*parts, strict=True):
        keys, marked = array(untied(sortable(part))), array(into)
        low, high = (np.partition(keys, end)[:, end, None] for end in (count - 1, -count))
        np.logical_or(keys <= low, keys >= high, out=marked)
        tied = np.count_nonzero(marked, -1) != 2 * count
        if tied.any():
            into[tied] = both_ends(part[tied], count)
    return mask


def both_ends(x: Tensor, count: int) -> Tensor:
    """Return the mask of the `count` first and the `count` last members of each row's order."""
    # the later of equal members are the smaller ones
    return largest(x, count) | largest(-x.flip(-1), count).flip(-1)
