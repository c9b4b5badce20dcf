"""Eviction as one gather in position order."""

import torch
from torch import Tensor

from optimized._dispatch import kernel_on_gpu
from optimized.vector._by_numpy import places
from reference.evict import DenseCache, RaggedCache


@kernel_on_gpu
def evict(keys: Tensor, values: Tensor, kept: Tensor) -> DenseCache | RaggedCache:
    *heads, tokens, width = keys.shape
    entries = places(kept)
    number = kept.numel() // max(1, tokens)
    offsets = torch.searchsorted(entries, tokens * torch.arange(number + 1, device=kept.device))
    left_keys = keys.reshape(kept.numel(), width).index_select(0, entries)
    left_values = values.reshape(kept.numel(), width).index_select(0, entries)
    positions = entries % max(1, tokens)
    count = len(entries) // max(1, number)
    if bool((offsets != count * torch.arange(number + 1, device=kept.device)).any()):
        return RaggedCache(left_keys, left_values, positions, offsets)
    shape = (*heads, count)
    return DenseCache(
        left_keys.view(*shape, width), left_values.view(*shape, width), positions.view(shape)
    )
