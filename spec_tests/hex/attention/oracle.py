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


def sum_restored_weights(queries, cache, causal, scale):
    """Return the sum of the weights on the entries restored from a cache."""
    keys, _ = read_unrounded(cache)
    return reference.attention_weights(queries, keys, causal, scale).sum((-3, -2))
