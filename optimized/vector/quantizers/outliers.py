"""The outlier mask by a partial sort of each end."""

import torch
from torch import Tensor

from optimized.vector.retain import largest
from reference.quantizers.outliers import outliers_per_end


def outlier_mask(x: Tensor, ratio: float) -> Tensor:
    count = outliers_per_end(x.shape[-1], ratio)
    if not count:
        return torch.zeros_like(x, dtype=torch.bool)
    # the later of equal members are the smaller ones
    return largest(x, count) | largest(-x.flip(-1), count).flip(-1)
