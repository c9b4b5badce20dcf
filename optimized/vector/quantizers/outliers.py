"""The outlier mask by a partial sort of each end."""

import numpy as np
import torch
from torch import Tensor

from optimized.vector._by_numpy import array, on_cpu
from optimized.vector.retain import largest, sortable
from reference.quantizers.outliers import outliers_per_end


def outlier_mask(x: Tensor, ratio: float) -> Tensor:
    count = outliers_per_end(x.shape[-1], ratio)
    if not count:
        return torch.zeros_like(x, dtype=torch.bool)
    if on_cpu(x) and x.numel():
        keys = array(sortable(x))
        ends = np.partition(keys, (count - 1, -count))
        mask = (keys <= ends[..., count - 1, None]) | (keys >= ends[..., -count, None])
        if np.count_nonzero(mask) == 2 * count * ends[..., 0].size:
            return torch.from_numpy(mask)
    # the later of equal members are the smaller ones
    return largest(x, count) | largest(-x.flip(-1), count).flip(-1)
