"""Compressed sparse rows without loops, and the store that draws with them."""

from collections.abc import Callable
from pathlib import Path

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from optimized.vector.expander import expander_mask
from reference import MaskStore as SlowMaskStore
from reference.hex.csr import CSR


def to_csr(mask: Bool[Tensor, "tokens channels"]) -> CSR:
    counts = mask.sum(1).cumsum(0)
    return CSR(torch.cat([counts.new_zeros(1), counts]), mask.nonzero()[:, 1])


def from_csr(
    offsets: Int64[Tensor, "rows_and_one"], columns: Int64[Tensor, "entries"], channels: int
) -> Bool[Tensor, "tokens channels"]:
    tokens = len(offsets) - 1
    mask = torch.zeros(tokens, channels, dtype=torch.bool, device=columns.device)
    rows = torch.arange(tokens, device=columns.device).repeat_interleave(offsets.diff())
    mask[rows, columns] = True
    return mask


class MaskStore(SlowMaskStore):
    """The store of the reference over the vectorised generator."""

    def __init__(
        self,
        directory: str | Path | None = None,
        capacity: int = 8,
        generate: Callable[..., Tensor] = expander_mask,
    ):
        super().__init__(directory, capacity, generate)
