"""Attention over the entries that the specification restores from a cache."""

import torch

import reference
from reference.hex.cache import read_unrounded


def read(queries, cache, causal=True, scale=None, keys=None, values=None):
    """Attend to the entries restored from a cache, and to new ones if there are any."""
    old = read_unrounded(cache)
    new = [x[..., :0, :] for x in old] if keys is None else [keys, values]
    found = (torch.cat([x, y], -2) for x, y in zip(old, new, strict=True))
    return reference.attention(queries, next(found), next(found), causal, scale)


def sums_of_restored(queries, cache, valid=None, causal=True, scale=None):
    """Return the log-sum-exp of the logits of the entries that queries see."""
    keys, _ = read_unrounded(cache)
    group, scale = queries.shape[-3] // keys.shape[-3], scale or queries.shape[-1] ** -0.5
    logits = queries.to(keys.dtype) @ keys.repeat_interleave(group, -3).mT * scale
    count, tokens = logits.shape[-2:]
    last = torch.arange(count)[:, None] + (tokens - count if causal else tokens)
    seen = torch.arange(tokens) <= last
    seen = seen if valid is None else seen & valid[..., None, None, :]
    return logits.masked_fill(~seen, -torch.inf).logsumexp(-1)


def sum_restored_weights(queries, cache, causal, scale):
    """Return the sum of the weights on the entries restored from a cache."""
    keys, _ = read_unrounded(cache)
    return reference.attention_weights(queries, keys, causal, scale).sum((-3, -2))
