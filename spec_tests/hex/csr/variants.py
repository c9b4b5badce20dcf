"""Sparse rows by PyTorch's own, and by searching."""

import numpy as np
import torch

import reference
from spec_tests.numpy_adapter import among_tensors
from spec_tests.variants.registry import register_variant


@register_variant("to_csr")
def by_pytorch(mask):
    """PyTorch's compressed rows."""
    sparse = mask.to_sparse_csr()
    return reference.CSR(sparse.crow_indices(), sparse.col_indices())


@register_variant("to_csr")
def by_search(mask):
    """The entries in order; rows begin where theirs would be inserted."""
    rows, columns = torch.where(mask)
    return reference.CSR(torch.searchsorted(rows, torch.arange(len(mask) + 1)), columns)


@register_variant("from_csr")
@among_tensors
def by_repeating(offsets, columns, channels):
    """Name the row of each entry."""
    mask = np.zeros((len(offsets) - 1, channels), bool)
    mask[np.repeat(np.arange(len(mask)), np.diff(offsets)), columns] = True
    return mask
