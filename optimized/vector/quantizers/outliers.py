"""The outlier mask by a partial sort of each end."""

from math import prod

import torch
from torch import Tensor

from optimized.vector.retain import best, sortable
from reference.quantizers.outliers import outliers_per_end


def outlier_mask(x: Tensor, ratio: float) -> Tensor:
    count = outliers_per_end(x.shape[-1], ratio)
    if not count:
        return torch.zeros_like(x, dtype=torch.bool)
    keys = sortable(x).reshape(prod(x.shape[:-1]), x.shape[-1])
    high = best(keys, count, few=False)
    low = best(~keys.flip(-1), count, few=False).flip(-1)  # the later of equals are the smaller
    return (high | low).view(x.shape)
