"""Rows of a batch that begin at different tokens."""

from collections.abc import Iterator
from itertools import product

import torch
from torch import Tensor

from reference.hubkv.refine import protected_mask


def valid_or_all(valid: Tensor | None, like: Tensor) -> Tensor:
    """Return `valid`; where there is none, every token of `like`, the last axis but one."""
    rows = (*like.shape[:-3], like.shape[-2])
    return like.new_ones(rows, dtype=torch.bool) if valid is None else valid


def row_starts(valid: Tensor) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield the place of each row in the batch, and its first real token."""
    for row in product(*map(range, valid.shape[:-1])):
        yield row, valid.shape[-1] - int(valid[row].sum())


def protected_ends(valid: Tensor, kv_heads: int, sinks: int, recent: int | None) -> Tensor:
    """Mark what `protected_mask` marks of each row without its padding, for all heads alike."""
    *batch, tokens = valid.shape
    protected = valid.new_zeros(*batch, kv_heads, tokens)
    for row, first in row_starts(valid):
        mask = protected_mask(tokens - first, sinks, recent)
        protected[row][:, first:] = mask.to(valid.device)
    return protected
