"""Attention that a block of last queries hands out, without the weights of all heads at once."""

import math

import torch
from torch import Tensor

# weights at a time: 2 MiB in float32, and at least those of one key head
WEIGHTS = 1 << 19


def drawn(queries: Tensor, keys: Tensor, valid: Tensor | None, exact: torch.dtype) -> Tensor:
    """Return the attention each token draws from all queries of a head, one row a query head.

    The result is `[*batch, kv_heads, group, tokens]`; the last query sits at the last key. Only
    the last columns need the causal mask, and a key head serves its group as one matrix.
    """
    *batch, heads, count, width = queries.shape
    kv_heads, tokens = keys.shape[-3:-1]
    rows, group = math.prod(batch) * kv_heads, heads // max(1, kv_heads)
    stacked = queries.reshape(rows, group * count, width)
    cache = keys.reshape(rows, tokens, width)
    real = None if valid is None else valid[..., None, :].expand(keys.shape[:-1])
    real = None if real is None else real.reshape(rows, 1, 1, tokens)
    out = cache.new_empty(rows, group, tokens, dtype=exact)
    later = torch.ones(count, count, dtype=torch.bool, device=keys.device).triu_(1)
    step = max(1, min(rows, WEIGHTS // max(1, group * count * tokens)))
    # the same memory for every piece: fresh pages cost as much as the arithmetic
    learns = torch.is_grad_enabled() and (queries.requires_grad or keys.requires_grad)
    size = (step, group * count, tokens)
    held = [None if learns else cache.new_empty(size, dtype=exact) for _ in range(2)]
    for start in range(0, rows, step):
        piece = slice(start, start + step)
        scaled = stacked[piece].to(exact) * (1 / math.sqrt(width))
        first, second = (None if room is None else room[: len(scaled)] for room in held)
        logits = torch.bmm(scaled, cache[piece].to(exact).mT, out=first)
        logits = logits.unflatten(1, (group, count))
        logits[..., tokens - count :].masked_fill_(later, -torch.inf)
        if real is not None:
            logits.masked_fill_(~real[piece], -torch.inf)
        second = None if second is None else second.view_as(logits)
        weights = torch.softmax(logits, -1, out=second)
        if real is not None:
            # a query at padding sees nothing: its softmax is no number
            weights.masked_fill_(~real[piece, ..., tokens - count :].mT, 0)
        out[piece] = weights.sum(-2)
    return out.view(*batch, kv_heads, group, tokens)
