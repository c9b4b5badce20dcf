"""Eviction as one gather in position order."""

import torch.nn.functional as F
from torch import Tensor

from optimized.vector._by_numpy import places
from reference.evict import DenseCache, RaggedCache


def evict(keys: Tensor, values: Tensor, kept: Tensor) -> DenseCache | RaggedCache:
    *heads, tokens, width = keys.shape
    counts = kept.sum(-1).flatten()
    entries = places(kept)
    left_keys = keys.reshape(kept.numel(), width).index_select(0, entries)
    left_values = values.reshape(kept.numel(), width).index_select(0, entries)
    positions = entries % max(1, tokens)
    if bool((counts != counts[:1]).any()):
        offsets = F.pad(counts.cumsum(0), (1, 0))
        return RaggedCache(left_keys, left_values, positions, offsets)
    shape = (*heads, len(entries) // max(1, len(counts)))
    return DenseCache(
        left_keys.view(*shape, width), left_values.view(*shape, width), positions.view(shape)
    )
