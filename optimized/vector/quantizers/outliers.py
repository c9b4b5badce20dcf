"""The outlier mask by one sort."""

import torch
from torch import Tensor

from reference.quantizers.outliers import outliers_per_end


def outlier_mask(x: Tensor, ratio: float) -> Tensor:
    mask, members = torch.zeros_like(x, dtype=torch.bool), x.shape[-1]
    if count := outliers_per_end(members, ratio):
        order = x.sort(dim=-1, descending=True, stable=True).indices
        ends = torch.cat([order[..., :count], order[..., members - count :]], -1)
        mask.scatter_(-1, ends, True)
    return mask
