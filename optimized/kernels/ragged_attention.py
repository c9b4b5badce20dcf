"""Attention over heads of different lengths, by split-KV with one more split for the new tokens.

Entries are divided into shares of one length, so that a long head has many programs and a short one
few. The lengths of heads stay on the GPU: a program finds its share from the offsets of all heads.
A second kernel merges the splits by their largest logits and sums of exponentials.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from optimized import vector
from optimized._dispatch import gradient_fallback
from optimized.kernels._attention_common import (
    DTYPES,
    WIDEST,
    multiplies_stored_dtype,
    multiprocessors,
    padded_width,
    product,
    tile,
)
from optimized.kernels._numerics import round_to_dtype, widened
from reference.evict import RaggedCache
from reference.ragged_attention import RaggedAttention

BLOCK = 64
ROWS = 64
SPLITS = 16  # that a program merges at a time
FIT = 3  # programs of 16 queries that fit on a multiprocessor of an H100; of more queries, two


@triton.jit
def weighted_values(weights, value, SPLIT: tl.constexpr, NATIVE: tl.constexpr):
    """Return weights times values; if SPLIT, a weight is a sum of two 16-bit numbers."""
    if SPLIT and (value.dtype == tl.bfloat16 or value.dtype == tl.float16):
        high = round_to_dtype(weights, value.dtype)
        low = round_to_dtype(weights - widened(high), value.dtype)
        return product(high, value, NATIVE) + product(low, value, NATIVE)
    else:
        return product(weights, value, NATIVE)


@triton.jit
def attend_tile(
    high, total, mean, query, position, keys, values, valid, start, stop, scale,
    NEW: tl.constexpr, CAUSAL: tl.constexpr, WIDTH: tl.constexpr, ROOM: tl.constexpr,
    BLOCK: tl.constexpr, NATIVE: tl.constexpr,
):  # fmt: skip
    """Return the running maximum, sum of exponentials and mean value after one more tile.

    No sum of large values overflows: the mean is normalised at every step, and weights are divided
    by the size of a tile before the product.
    """
    n = start + tl.arange(0, BLOCK)
    logits = product(query, tl.trans(tile(keys, start, stop, WIDTH, ROOM, BLOCK)), NATIVE)
    seen = (n < stop)[None, :]
    if NEW:
        if valid is not None:
            real = tl.load(valid + n, mask=n < stop, other=0) != 0
            seen &= (real[None, :] | (position[:, None] == n[None, :])) if CAUSAL else real[None, :]
        if CAUSAL:
            seen &= n[None, :] <= position[:, None]
    logits = tl.where(seen, logits * scale, -float("inf"))
    top = tl.maximum(high, tl.max(logits, 1))
    base = tl.where(top == -float("inf"), 0.0, top)
    power = tl.exp2((logits - base[:, None]) * 1.4426950408889634)
    before = total * tl.exp2((high - base) * 1.4426950408889634)
    total = before + tl.sum(power, 1)
    inverse = 1.0 / tl.where(total > 0, total, 1.0)
    value = tile(values, start, stop, WIDTH, ROOM, BLOCK)
    # weights as two 16-bit numbers are precise enough for a 16-bit output
    fresh = weighted_values(power * (1.0 / BLOCK), value, query.dtype != tl.float32, NATIVE)
    return top, total, mean * (before * inverse)[:, None] + fresh * (inverse * BLOCK)[:, None]


@triton.jit
def shares_of(offsets, lines, share, LINES: tl.constexpr):
    """Return the heads, and into how many shares the entries of each are divided."""
    h = tl.arange(0, LINES)
    begin = tl.load(offsets + h, mask=h < lines, other=0)
    end = tl.load(offsets + h + 1, mask=h < lines, other=0)
    return h, tl.cdiv(end - begin, share).to(tl.int32)


@triton.jit(do_not_specialize=["rows", "count", "tokens", "blocks", "splits", "share"])
def attend_kernel(
    queries, left_keys, left_values, offsets, keys, values, valid, means, sums,
    rows, count, tokens, kv_heads, lines, blocks, splits, share, scale,
    CAUSAL: tl.constexpr, WIDTH: tl.constexpr, ROOM: tl.constexpr, ROWS: tl.constexpr,
    LINES: tl.constexpr, BLOCK: tl.constexpr, NATIVE: tl.constexpr,
):  # fmt: skip
    """Write the attention of a block of queries to a share of the entries, or to the new tokens.

    A head has `rows` queries, `count` for each of its query heads. Shares are numbered head by
    head; programs from `splits` on have new tokens, and those between find no entries left.
    """
    split = tl.program_id(0) // blocks
    r0 = tl.program_id(0) % blocks * ROWS
    h, many = shares_of(offsets, lines, share, LINES)
    number = tl.sum((tl.cumsum(many, 0) <= split).to(tl.int32), 0)
    number = tl.where(split < splits, tl.minimum(number, lines - 1), split - splits)
    first = (split - tl.sum(tl.where(h < number, many, 0), 0)) * share
    head = number.to(tl.int64)
    r = r0 + tl.arange(0, ROWS)
    position = tokens - count + r % count
    query = tile(queries + head * rows * WIDTH, r0, rows, WIDTH, ROOM, ROWS)
    high = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mean = tl.zeros([ROWS, ROOM], tl.float32)
    if split >= splits:
        keys += head * tokens * WIDTH
        values += head * tokens * WIDTH
        if valid is not None:
            valid += head // kv_heads * tokens
        # one token, as in a decoding step, fills no pipeline
        for start in tl.range(0, tokens, BLOCK, num_stages=1):
            high, total, mean = attend_tile(
                high, total, mean, query, position, keys, values, valid, start, tokens, scale,
                True, CAUSAL, WIDTH, ROOM, BLOCK, NATIVE,
            )  # fmt: skip
    else:
        begin = tl.load(offsets + head)
        entries = (tl.load(offsets + head + 1) - begin).to(tl.int32)
        left_keys += (begin + first) * WIDTH
        left_values += (begin + first) * WIDTH
        stop = tl.minimum(share, entries - first)
        for start in range(0, stop, BLOCK):
            high, total, mean = attend_tile(
                high, total, mean, query, position, left_keys, left_values, valid, start, stop,
                scale, False, CAUSAL, WIDTH, ROOM, BLOCK, NATIVE,
            )  # fmt: skip
    row = split.to(tl.int64) * rows + r
    d = tl.arange(0, ROOM)
    tl.store(sums + row * 2, high, mask=r < rows)
    tl.store(sums + row * 2 + 1, total, mask=r < rows)
    there = (r < rows)[:, None] & (d < WIDTH)[None, :]
    tl.store(means + row[:, None] * WIDTH + d[None, :], mean, mask=there)


@triton.jit(do_not_specialize=["rows", "splits", "share"])
def join_kernel(
    means, sums, offsets, out, log_sums, rows, lines, splits, share,
    WIDTH: tl.constexpr, ROOM: tl.constexpr, LINES: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """Write a query's weighted mean over its shares and the new tokens, and its log-sum-exp."""
    row = tl.program_id(0).to(tl.int64)
    head, r = row // rows, row % rows
    h, many = shares_of(offsets, lines, share, LINES)
    before = tl.sum(tl.where(h < head, many, 0), 0)
    shares = tl.sum(tl.where(h == head, many, 0), 0)
    d = tl.arange(0, ROOM)
    last = (splits + head) * rows + r
    high, total = tl.load(sums + last * 2), tl.load(sums + last * 2 + 1)
    mean = tl.load(means + last * WIDTH + d, mask=d < WIDTH, other=0.0)
    for start in range(0, shares, SPLITS):
        s = start + tl.arange(0, SPLITS)
        here = (before + s).to(tl.int64) * rows + r
        tops = tl.load(sums + here * 2, mask=s < shares, other=-float("inf"))
        parts = tl.load(sums + here * 2 + 1, mask=s < shares, other=0.0)
        top = tl.maximum(high, tl.max(tops, 0))
        base = tl.where(top == -float("inf"), 0.0, top)
        weight = parts * tl.exp2((tops - base) * 1.4426950408889634)
        old = total * tl.exp2((high - base) * 1.4426950408889634)
        high, total = top, old + tl.sum(weight, 0)
        inverse = 1.0 / tl.where(total > 0, total, 1.0)
        there = (s < shares)[:, None] & (d < WIDTH)[None, :]
        part = tl.load(means + here[:, None] * WIDTH + d[None, :], mask=there, other=0.0)
        mean = mean * (old * inverse) + tl.sum((weight * inverse)[:, None] * part, 0)
    tl.store(out + row * WIDTH + d, round_to_dtype(mean, out.dtype.element_ty), mask=d < WIDTH)
    if log_sums is not None:
        tl.store(log_sums + row, high + tl.log(tl.where(total > 0, total, 1.0)))


@gradient_fallback(vector.ragged_attention)
def ragged_attention(
    queries: Tensor,
    cache: RaggedCache,
    keys: Tensor,
    values: Tensor,
    valid: Tensor | None,
    causal: bool,
    scale: float | None,
    log_sum_exp: bool,
) -> Tensor | RaggedAttention:
    if not {queries.dtype, keys.dtype, cache.keys.dtype} <= DTYPES or queries.shape[-1] > WIDEST:
        settings = valid, causal, scale, log_sum_exp
        return vector.ragged_attention(queries, cache, keys, values, *settings)
    exact, queries = dict(dtype=torch.float32), queries.contiguous()
    out = torch.empty_like(queries)
    log_sums = queries.new_empty(queries.shape[:-1], **exact) if log_sum_exp else None
    found = out if log_sums is None else RaggedAttention(out, log_sums)
    if not queries.numel():
        return found
    *batch, heads, count, width = queries.shape
    kv_heads, tokens = keys.shape[-3:-1]
    lines = math.prod(batch) * kv_heads
    rows, entries = heads // kv_heads * count, len(cache.keys)
    keys, values = keys.contiguous(), values.contiguous()
    # products of float32 hold their rows in registers
    wide = max(queries.itemsize, keys.itemsize, cache.keys.itemsize) > 2
    block = max(1, BLOCK // 2) if wide else BLOCK
    size = min(16 if wide else ROWS, max(16, triton.next_power_of_2(rows)))
    blocks = triton.cdiv(rows, size)
    # all programs run at once: no more shares than fit beside the new tokens, but one for each head
    fit = multiprocessors(queries.device) * (FIT if size <= 16 else 2) // blocks - 2 * lines
    share = max(1, triton.cdiv(triton.cdiv(entries, max(fit, lines)), block)) * block
    splits = entries // share + lines
    offsets = cache.offsets.contiguous()
    means = queries.new_empty((splits + lines, rows, width), **exact)
    sums = queries.new_empty((splits + lines, rows, 2), **exact)
    shape = dict(WIDTH=width, ROOM=padded_width(width), LINES=triton.next_power_of_2(lines))
    attend_kernel[((splits + lines) * blocks,)](
        queries, cache.keys.contiguous(), cache.values.contiguous(), offsets,
        keys, values, None if valid is None else valid.contiguous(), means, sums,
        rows, count, tokens, kv_heads, lines, blocks, splits, share,
        1 / math.sqrt(width) if scale is None else scale,
        CAUSAL=causal, ROWS=size, BLOCK=block, **shape,
        NATIVE=multiplies_stored_dtype(attend_kernel, queries, keys, cache.keys),
        num_warps=8 if wide else 4,
    )  # fmt: skip
    join_kernel[(lines * rows,)](
        means, sums, offsets, out, log_sums, rows, lines, splits, share, SPLITS=SPLITS, **shape
    )
    return found
