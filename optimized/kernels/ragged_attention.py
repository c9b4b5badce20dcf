"""Attention over heads of different lengths, by split-KV with one more split for the new tokens.

The lengths of heads stay on the GPU: a program reads the start of its share, which may be empty. A
second kernel merges the splits by their largest logits and sums of exponentials.
"""

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from optimized import vector
from optimized._dispatch import gradient_fallback
from optimized.kernels._attention_common import (
    DTYPES,
    PROGRAMS,
    WIDEST,
    multiplies_stored_dtype,
    padded_width,
    product,
    tile,
)
from optimized.kernels._numerics import round_to_dtype, widened
from reference.evict import RaggedCache

BLOCK = 64
ROWS = 64
SPLITS = 64


class Shape(NamedTuple):
    """The sizes of queries and of new tokens."""

    rows: int  # queries of all heads of a group
    queries: int  # of one head
    tokens: int
    kv_heads: int
    all_rows: int  # queries of all heads


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
    high, total, mean, query, at, keys, values, valid, start, stop, scale,
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
            seen &= (real[None, :] | (at[:, None] == n[None, :])) if CAUSAL else real[None, :]
        if CAUSAL:
            seen &= n[None, :] <= at[:, None]
    logits = tl.where(seen, logits * scale, -float("inf"))
    top = tl.maximum(high, tl.max(logits, 1))
    base = tl.where(top == -float("inf"), 0.0, top)
    power = tl.exp2((logits - base[:, None]) * 1.4426950408889634)
    before = total * tl.exp2((high - base) * 1.4426950408889634)
    total = before + tl.sum(power, 1)
    some = 1.0 / tl.where(total > 0, total, 1.0)
    value = tile(values, start, stop, WIDTH, ROOM, BLOCK)
    # weights as two 16-bit numbers are precise enough for a 16-bit output
    fresh = weighted_values(power * (1.0 / BLOCK), value, query.dtype != tl.float32, NATIVE)
    return top, total, mean * (before * some)[:, None] + fresh * (some * BLOCK)[:, None]


@triton.jit
def attend_kernel(
    queries, left_keys, left_values, offsets, keys, values, valid, means, sums,
    shape, blocks, splits, scale,
    CAUSAL: tl.constexpr, WIDTH: tl.constexpr, ROOM: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr, NATIVE: tl.constexpr,
):  # fmt: skip
    """Write the attention of a block of queries to a share of the entries, or to the new tokens."""
    rows, count, tokens = shape.rows, shape.queries, shape.tokens
    number = tl.program_id(0)
    split = number % (splits + 1)
    block = number // (splits + 1) % blocks
    head = (number // (splits + 1) // blocks).to(tl.int64)
    r0 = block * ROWS
    r = r0 + tl.arange(0, ROWS)
    at = tokens - count + r % count
    query = tile(queries + head * rows * WIDTH, r0, rows, WIDTH, ROOM, ROWS)
    high = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mean = tl.zeros([ROWS, ROOM], tl.float32)
    if split == splits:
        keys += head * tokens * WIDTH
        values += head * tokens * WIDTH
        if valid is not None:
            valid += head // shape.kv_heads * tokens
        for start in range(0, tokens, BLOCK):
            high, total, mean = attend_tile(
                high, total, mean, query, at, keys, values, valid, start, tokens, scale,
                True, CAUSAL, WIDTH, ROOM, BLOCK, NATIVE,
            )  # fmt: skip
    else:
        begin = tl.load(offsets + head)
        entries = (tl.load(offsets + head + 1) - begin).to(tl.int32)
        share = tl.cdiv(tl.cdiv(entries, splits), BLOCK) * BLOCK
        first = split * share
        left_keys += (begin + first) * WIDTH
        left_values += (begin + first) * WIDTH
        stop = tl.minimum(first + share, entries) - first
        for start in range(0, stop, BLOCK):
            high, total, mean = attend_tile(
                high, total, mean, query, at, left_keys, left_values, valid, start, stop, scale,
                False, CAUSAL, WIDTH, ROOM, BLOCK, NATIVE,
            )  # fmt: skip
    row = split.to(tl.int64) * shape.all_rows + head * rows + r
    d = tl.arange(0, ROOM)
    tl.store(sums + row * 2, high, mask=r < rows)
    tl.store(sums + row * 2 + 1, total, mask=r < rows)
    there = (r < rows)[:, None] & (d < WIDTH)[None, :]
    tl.store(means + row[:, None] * WIDTH + d[None, :], mean, mask=there)


@triton.jit
def join_kernel(
    means, sums, out, splits, all_rows,
    WIDTH: tl.constexpr, ROOM: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """Write the output of a query: the weighted mean over its splits."""
    row = tl.program_id(0).to(tl.int64)
    s, d = tl.arange(0, SPLITS).to(tl.int64), tl.arange(0, ROOM)
    here = s * all_rows + row
    high = tl.load(sums + here * 2, mask=s <= splits, other=-float("inf"))
    total = tl.load(sums + here * 2 + 1, mask=s <= splits, other=0.0)
    top = tl.max(high, 0)
    base = tl.where(top == -float("inf"), 0.0, top)
    weight = total * tl.exp2((high - base) * 1.4426950408889634)
    whole = tl.sum(weight, 0)
    weight = weight / tl.where(whole > 0, whole, 1.0)
    there = (s <= splits)[:, None] & (d < WIDTH)[None, :]
    mean = tl.load(means + here[:, None] * WIDTH + d[None, :], mask=there, other=0.0)
    found = tl.sum(weight[:, None] * mean, 0)
    tl.store(out + row * WIDTH + d, round_to_dtype(found, out.dtype.element_ty), mask=d < WIDTH)


@gradient_fallback(vector.ragged_attention)
def ragged_attention(
    queries: Tensor,
    cache: RaggedCache,
    keys: Tensor,
    values: Tensor,
    valid: Tensor | None,
    causal: bool,
    scale: float | None,
) -> Tensor:
    if not queries.numel():
        return torch.empty_like(queries)
    if not {queries.dtype, keys.dtype, cache.keys.dtype} <= DTYPES or queries.shape[-1] > WIDEST:
        return vector.ragged_attention(queries, cache, keys, values, valid, causal, scale)
    *batch, heads, count, width = queries.shape
    kv_heads, tokens = keys.shape[-3:-1]
    lines = math.prod(batch) * kv_heads
    rows, entries = heads // kv_heads * count, len(cache.keys)
    queries, keys, values = queries.contiguous(), keys.contiguous(), values.contiguous()
    size = min(ROWS, max(16, triton.next_power_of_2(rows)))
    blocks = triton.cdiv(rows, size)
    # blocks of a head of mean length; the longest is known on the GPU alone
    most = triton.cdiv(triton.cdiv(entries, lines), BLOCK)
    splits = max(1, min(PROGRAMS // (lines * blocks), most, SPLITS - 1))
    exact = dict(dtype=torch.float32)
    means = queries.new_empty((splits + 1, lines * rows, width), **exact)
    sums = queries.new_empty((splits + 1, lines * rows, 2), **exact)
    attend_kernel[(lines * blocks * (splits + 1),)](
        queries, cache.keys.contiguous(), cache.values.contiguous(), cache.offsets.contiguous(),
        keys, values, None if valid is None else valid.contiguous(), means, sums,
        Shape(rows, count, tokens, kv_heads, lines * rows), blocks, splits,
        1 / math.sqrt(width) if scale is None else scale,
        CAUSAL=causal, WIDTH=width, ROOM=padded_width(width), ROWS=size, BLOCK=BLOCK,
        NATIVE=multiplies_stored_dtype(attend_kernel, queries, keys, cache.keys),
    )  # fmt: skip
    out = torch.empty_like(queries)
    join_kernel[(lines * rows,)](
        means, sums, out, splits, lines * rows,
        WIDTH=width, ROOM=padded_width(width), SPLITS=triton.next_power_of_2(splits + 1),
    )  # fmt: skip
    return out
