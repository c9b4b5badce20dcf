"""Plain ways to attention and its errors."""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

import optimized as kv
from optimized.bench.straightforward.rows import (
    Inputs,
    importance,
    last_queries,
    layer,
    normal,
    row,
)

WINDOW = 32
SHAPE = "32 query heads, 8 key heads of 128, {} tokens, "


@row(last_queries(WINDOW), SHAPE + "32 queries")
def attention_weights(queries: Tensor, keys: Tensor) -> Tensor:
    """Multiply each group of query heads by its keys at once; mask the last tokens alone."""
    batch, heads, count, width = queries.shape
    grouped = queries.reshape(batch, keys.shape[1], -1, width)
    logits = (grouped @ keys.mT).view(batch, heads, count, -1).float() / math.sqrt(width)
    future = torch.ones(count, count, dtype=torch.bool, device=keys.device).triu(1)
    logits[..., -count:].masked_fill_(future, -math.inf)
    return logits.softmax(-1)


@row(last_queries(WINDOW, values=True), SHAPE + "32 queries")
def attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Call the fused attention of PyTorch with a mask that ends at the last token."""
    count, tokens = queries.shape[-2], keys.shape[-2]
    seen = torch.ones(count, tokens, dtype=torch.bool, device=keys.device).tril(tokens - count)
    return F.scaled_dot_product_attention(queries, keys, values, seen, enable_gqa=True)


def evicted(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return a cache whose heads keep different numbers of entries, and one new token."""
    scores = importance(3, 1, 8, tokens) * torch.arange(1, 9)[:, None]
    cache = kv.evict(**layer(tokens, dtype), kept=kv.retain(scores, ratio=0.75, scope="layer"))
    return dict(cache=cache, queries=normal(0, 1, 32, 1, 128).to(dtype)) | layer(1, dtype)


@row(evicted, SHAPE + "75 % evicted, one query")
def ragged_attention(
    queries: Tensor, cache: kv.RaggedCache, keys: Tensor, values: Tensor
) -> Tensor:
    """Attend in one head after another."""
    grouped, outputs = queries.view(8, 4, 128), []
    for head, (start, stop) in enumerate(pairwise(cache.offsets.tolist())):
        own_keys = torch.cat([cache.keys[start:stop], keys[0, head]])
        own_values = torch.cat([cache.values[start:stop], values[0, head]])
        sides = grouped[head, None], own_keys[None], own_values[None]
        outputs.append(F.scaled_dot_product_attention(*sides))
    return torch.cat(outputs).view_as(queries)
