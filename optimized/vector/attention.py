"""Attention with grouped queries as two batched products."""

import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from reference.attention import known_of
from reference.contract.enforce import has_memory
from reference.precision import widen, widest

QUERIES = 128
"""Queries at a time, so that the memory of weights does not grow with their number."""
# most weights at a time, but at least those of one key head: 2 MiB in float32
WEIGHTS = 1 << 19


def attention_weights(
    queries: Tensor, keys: Tensor, causal: bool, scale: float | None, log_sum_exp: Tensor | None
) -> Tensor:
    unseen = later(queries, keys) if causal else None
    return masked_weights(queries, keys, unseen, scale, log_sum_exp)


def later(queries: Tensor, keys: Tensor) -> Tensor:
    """Return the mask of keys after each query; the last query is at the last key."""
    count, tokens = queries.shape[-2], keys.shape[-2]
    unseen = torch.ones(count, tokens, dtype=torch.bool, device=keys.device)
    return unseen.triu_(tokens - count + 1)


def masked_weights(
    queries: Tensor,
    keys: Tensor,
    unseen: Tensor | None,
    scale: float | None = None,
    log_sum_exp: Tensor | None = None,
) -> Tensor:
    """Return the weights over keys that are not `unseen`; NaN for a query that sees none."""
    scale = 1 / math.sqrt(queries.shape[-1]) if scale is None else scale
    exact = widest(queries, keys, log_sum_exp)
    logits = _grouped_product(queries.to(exact) * scale, keys.to(exact).mT)
    if unseen is not None:
        logits = logits.masked_fill_(unseen, -torch.inf)
    if log_sum_exp is None:
        return logits.softmax(-1)
    return logits.sub_(log_sum_exp[..., None]).exp_()


def _grouped_product(left: Tensor, right: Tensor) -> Tensor:
    """Return each head's matrix times that of its group, without repeating the latter."""
    *batch, heads, rows, inner = left.shape
    group = heads // max(1, right.shape[-3])
    stacked = left.reshape(*batch, right.shape[-3], group * rows, inner)
    return (stacked @ right).reshape(*batch, heads, rows, right.shape[-1])


def attention(
    queries: Tensor, keys: Tensor, values: Tensor, causal: bool, scale: float | None
) -> Tensor:
    exact = widest(queries, keys, values)
    if queries.numel() and keys.numel() and values.numel() and queries.ndim == 4:
        asking, read, given = (x.to(exact) for x in (queries, keys, values))
        seen = ~later(queries, keys) if causal else None
        grouped = queries.shape[-3] != keys.shape[-3]
        answers = F.scaled_dot_product_attention(
            asking, read, given, seen, scale=scale, enable_gqa=grouped
        )
        return answers.to(queries.dtype)
    weights = attention_weights(queries, keys, causal, scale, None).to(exact)
    return _grouped_product(weights, values.to(exact)).to(queries.dtype)


def attention_error(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    compressed_keys: Tensor,
    compressed_values: Tensor,
    causal: bool,
    scale: float | None,
) -> Tensor:
    exact = widen(queries)
    for tensor in (keys, values, compressed_keys, compressed_values):
        exact = exact.to(torch.promote_types(exact.dtype, tensor.dtype))
    before = attention(exact, keys, values, causal, scale)
    after = attention(exact, compressed_keys, compressed_values, causal, scale)
    return (before - after).norm(dim=-1)


def attention_drawn(
    queries: Tensor,
    keys: Tensor,
    valid: Tensor | None,
    log_sum_exp: Tensor | None,
    exact: torch.dtype,
    causal: bool = True,
    reduce: Callable[[Tensor, int], Tensor] = torch.sum,
) -> Tensor:
    """Return the attention mass that each token receives from all queries of a query head.

    The result is `[*batch, kv_heads, group, tokens]`; the last query is at the last key. Only the
    last columns need the causal mask. The queries of a group are one matrix per key head. `reduce`
    may take the largest weight instead of the sum.
    """
    *batch, heads, count, width = queries.shape
    kv_heads, tokens = keys.shape[-3:-1]
    rows, group = math.prod(batch) * kv_heads, heads // max(1, kv_heads)
    stacked = queries.reshape(rows, group * count, width)
    cache = keys.reshape(rows, tokens, width)
    real = None if valid is None else valid[..., None, :].expand(keys.shape[:-1])
    real = None if real is None else real.reshape(rows, 1, 1, tokens)
    log_sum = None if log_sum_exp is None else log_sum_exp.reshape(rows, group, count, 1)
    # a query at padding sees no key: its softmax is NaN, and a given log-sum-exp is arbitrary
    blind = None if real is None else ~real[..., tokens - count :].mT
    if log_sum is not None and blind is not None:
        log_sum = log_sum.masked_fill(blind, 0)
    out = cache.new_empty(rows, group, tokens, dtype=exact)
    unseen = later(queries, queries) if causal else None
    step = max(1, min(rows, WEIGHTS // max(1, group * count * tokens)))
    # all pieces share one buffer: new memory pages cost as much as the arithmetic
    given = [x for x in (queries, keys, log_sum_exp) if x is not None]
    learns = torch.is_grad_enabled() and any(x.requires_grad for x in given)
    learns |= not all(map(has_memory, given))
    size = (step, group * count, tokens)
    spared = learns, learns or log_sum is not None
    buffers = [None if none else cache.new_empty(size, dtype=exact) for none in spared]
    for start in range(0, rows, step):
        piece = slice(start, start + step)
        scaled = stacked[piece].to(exact) * (1 / math.sqrt(width))
        first, second = (None if room is None else room[: len(scaled)] for room in buffers)
        logits = torch.bmm(scaled, cache[piece].to(exact).mT, out=first)
        logits = logits.unflatten(1, (group, count))
        if unseen is not None:
            logits[..., tokens - count :].masked_fill_(unseen, -torch.inf)
        if real is not None:
            logits.masked_fill_(~real[piece], -torch.inf)
        second = None if second is None else second.view_as(logits)
        if log_sum is not None:
            weights = logits.sub_(log_sum[piece]).exp_()
        else:
            weights = torch.softmax(logits, -1, out=second)
            if blind is not None:
                blank = torch.masked_fill if learns else Tensor.masked_fill_
                weights = blank(weights, blind[piece], 0)
        out[piece] = reduce(weights, -2)
    return out.view(*batch, kv_heads, group, tokens)


def mass_by_blocks(
    queries: Tensor,
    keys: Tensor,
    valid: Tensor | None,
    log_sum_exp: Tensor | None,
    exact: torch.dtype,
    causal: bool = True,
    reduce: Callable[[Tensor, int], Tensor] = torch.sum,
) -> Iterator[tuple[int, Tensor]]:
    """Yield the number of tokens that a block of queries sees, and their mass from the block."""
    tokens, count = keys.shape[-2], queries.shape[-2]
    for start in range(0, count, QUERIES):
        stop = min(count, start + QUERIES)
        seen = tokens - count + stop if causal else tokens
        real = None if valid is None else valid[..., :seen]
        log_sum = known_of(log_sum_exp, slice(start, stop))
        block = queries[..., start:stop, :], keys[..., :seen, :], real, log_sum
        yield seen, attention_drawn(*block, exact, causal, reduce)
