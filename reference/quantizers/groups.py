"""Rows cut into groups, each on a grid of its own."""

import torch
from torch import Tensor

from reference.hex.kcvt import code, dequantise
from reference.hex.packing import pack_bits, unpack_bits


def quantise_groups(
    name: str, rows: Tensor, bits: int, group: int, scales: torch.dtype | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return each row's codes as one stream of bits, and the steps and minima of its groups."""
    x = grouped(rows, group)
    q = code(name, x, bits, torch.zeros_like(x, dtype=torch.bool), scales)
    return pack_bits(q.codes.flatten(-2), bits), q.steps, q.minima


def restore_groups(
    words: Tensor, steps: Tensor, minima: Tensor, bits: int, group: int, members: int
) -> Tensor:
    """Return rows of so many members from what `quantise_groups` made of them."""
    codes = grouped(unpack_bits(words, bits, members), group)
    return dequantise(codes, steps, minima).flatten(-2)


def grouped(rows: Tensor, group: int) -> Tensor:
    """Cut the last axis into groups."""
    return rows.unflatten(-1, (rows.shape[-1] // group, group))
