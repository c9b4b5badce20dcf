"""Plain ways to the parts of KIVI and GEAR."""

import numpy as np
import torch
from torch import Tensor

from optimized.bench.straightforward.rows import KV_HEADS, WIDTH, row
from optimized.bench.straightforward.selection import marked
from optimized.bench.timing_harness import Inputs, normal


def rows_alone(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return rows with outliers."""
    return dict(x=normal(0, KV_HEADS * WIDTH, tokens).to(dtype))


@row(rows_alone, "1024 rows of {}")
def outlier_mask(x: Tensor) -> Tensor:
    """Mark one percent at each end."""
    ends = (x.topk(x.shape[-1] // 100, largest=end, sorted=False) for end in (True, False))
    return marked(x, torch.cat([end.indices for end in ends], -1))


def matrices(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return a matrix of each head."""
    return dict(x=normal(0, KV_HEADS, tokens, WIDTH).to(dtype), rank=4)


@row(matrices, "8 heads of 128, {} tokens, rank 4", compared=lambda found: found[0] @ found[1].mT)
def low_rank(x: Tensor, rank: int) -> Tensor:
    """Iterate from a few columns, the same as ours, and multiply the factors."""
    wide = x.float()
    start = 2 * np.random.RandomState([0, 4]).random_sample((rank, WIDTH)) - 1
    columns = torch.from_numpy(start).float().T
    for _ in range(2):
        columns = wide.mT @ (wide @ columns)
    left = torch.linalg.qr(wide @ torch.linalg.qr(columns).Q).Q
    return left @ (wide.mT @ left).mT
