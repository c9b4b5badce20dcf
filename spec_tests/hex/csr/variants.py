"""Sparse rows by PyTorch's CSR tensors, and by searching."""

import numpy as np
import torch

import reference
from spec_tests.numpy_adapter import among_tensors
from spec_tests.variants.registry import register_variant


@register_variant("to_csr")
def by_pytorch(mask):
    """Use PyTorch's compressed rows."""
    sparse = mask.to_sparse_csr()
    return reference.CSR(sparse.crow_indices(), sparse.col_indices())


@register_variant("to_csr")
def by_search(mask):
    """List the entries in order; find the offset of each row by binary search."""
    rows, columns = torch.where(mask)
    return reference.CSR(torch.searchsorted(rows, torch.arange(len(mask) + 1)), columns)


@register_variant("from_csr")
@among_tensors
def by_repeating(offsets, columns, channels):
    """Repeat the number of each row for its entries."""
    mask = np.zeros((len(offsets) - 1, channels), bool)
    mask[np.repeat(np.arange(len(mask)), np.diff(offsets)), columns] = True
    return mask
