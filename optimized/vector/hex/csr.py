"""Compressed sparse rows by cumulative counts."""

import torch
from torch import Tensor

from reference.hex.csr import CSR


def to_csr(mask: Tensor) -> CSR:
    counts = mask.sum(1).cumsum(0)
    return CSR(torch.cat([counts.new_zeros(1), counts]), mask.nonzero()[:, 1])


def from_csr(offsets: Tensor, columns: Tensor, channels: int) -> Tensor:
    tokens = len(offsets) - 1
    mask = torch.zeros(tokens, channels, dtype=torch.bool, device=columns.device)
    rows = torch.arange(tokens, device=columns.device).repeat_interleave(offsets.diff())
    mask[rows, columns] = True
    return mask
