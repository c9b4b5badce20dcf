"""Attention of all queries at once, which variants of scorers share."""

import torch

import reference


def real(valid, keys):
    """Return the mask of real tokens."""
    rows = (*keys.shape[:-3], keys.shape[-2])
    return torch.ones(rows, dtype=torch.bool) if valid is None else valid


def weights(queries, keys, valid=None, log_sum_exp=None, dtype=None):
    """Return the weights by one product and one softmax, `*batch kv_heads group queries tokens`.

    They are 0 at tokens that a query does not see, and at padded queries.
    """
    kv_heads, tokens, width = keys.shape[-3:]
    count, group = queries.shape[-2], queries.shape[-3] // max(1, kv_heads)
    dtype = dtype or accumulation_dtype(queries, keys, log_sum_exp)
    asking = queries.to(dtype).unflatten(-3, (kv_heads, group))
    logits = asking @ keys.to(dtype)[..., None, :, :].mT / width**0.5
    at = torch.arange(tokens)
    seen = at <= at[tokens - count :, None]
    mask = real(valid, keys)
    seen = seen & mask[..., None, :] & mask[..., tokens - count :, None]
    seen = seen[..., None, None, :, :]
    if log_sum_exp is None:
        found = logits.masked_fill(~seen, -torch.inf).softmax(-1)
    else:
        found = (logits - log_sum_exp.unflatten(-2, (kv_heads, group))[..., None]).exp()
    return torch.where(seen, found, 0)


def accumulation_dtype(*tensors):
    """Return float64 if one of the tensors has it, else float32."""
    wide = any(x is not None and x.dtype == torch.float64 for x in tensors)
    return torch.float64 if wide else torch.float32


def last(mask, count, kv_heads):
    """Mark the last real tokens of each row, for all heads."""
    *batch, tokens = mask.shape
    marked = mask & (torch.arange(tokens) >= tokens - count)
    return marked[..., None, :].expand(*batch, kv_heads, tokens).clone()


def ends(mask, sinks, recent, kv_heads):
    """Mark the first and the last real tokens of each row, for all heads."""
    *batch, tokens = mask.shape
    marked = torch.zeros(torch.Size(batch).numel(), tokens, dtype=torch.bool)
    for row, own in zip(marked, mask.reshape(marked.shape), strict=True):
        count = int(own.sum())
        row[tokens - count :] = reference.protected_mask(count, sinks, recent)
    return marked.reshape(*batch, 1, tokens).repeat_interleave(kv_heads, -2)
