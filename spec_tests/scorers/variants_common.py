"""What the variants of scorers share."""

import torch

import reference


def real(valid, keys):
    """Return the mask of real tokens."""
    rows = (*keys.shape[:-3], keys.shape[-2])
    return torch.ones(rows, dtype=torch.bool) if valid is None else valid


def accumulation_dtype(*tensors):
    """Return float64 if one of the tensors has it, else float32."""
    wide = any(x is not None and x.dtype == torch.float64 for x in tensors)
    return torch.float64 if wide else torch.float32


def ends(mask, sinks, recent, kv_heads):
    """Mark the first and the last real tokens of each row, for all heads."""
    *batch, tokens = mask.shape
    marked = torch.zeros(torch.Size(batch).numel(), tokens, dtype=torch.bool)
    for row, own in zip(marked, mask.reshape(marked.shape), strict=True):
        count = int(own.sum())
        row[tokens - count :] = reference.protected_mask(count, sinks, recent)
    return marked.reshape(*batch, 1, tokens).repeat_interleave(kv_heads, -2)
