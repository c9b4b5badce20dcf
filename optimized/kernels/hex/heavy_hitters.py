"""Attention mass in two passes, or one if the log-sum-exp is given, without weights in memory.

The first pass finds the largest logit of each query and the inverse of its sum of exponentials. The
second pass sums weights over queries. A program of the second pass has a block of keys and reads
the queries that see it in order, so it needs no atomics. The first pass stores two numbers per
query, not their log-sum-exp: for large logits, rounding the logarithm costs more precision than a
weight has. If the caller gives the log-sum-exp, the first pass is skipped.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from optimized import vector
from optimized._dispatch import gradient_fallback
from optimized.kernels._attention_common import (
    kernels_support,
    multiplies_stored_dtype,
    multiprocessors,
    padded_width,
    product,
    tile,
)
from optimized.kernels._numerics import widened
from reference.contract import checks

BLOCK = 128  # queries of a program in pass one, keys in pass two; half of it for the other
SPLITS = 64
FIT = 2  # programs of the first pass that fit on a multiprocessor of an H100; fewer split heads


@triton.jit
def update_sums(
    high, total, query, position, keys, start, stop, first, scale,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, WIDTH: tl.constexpr, ROOM: tl.constexpr,
    KEYS: tl.constexpr, NATIVE: tl.constexpr,
):  # fmt: skip
    """Return the running maximum and sum of exponentials of queries after one more tile of keys.

    The maximum is subtracted before logits are scaled, so that its exponential is exactly 1.
    """
    logits = product(query, tl.trans(tile(keys, start, stop, WIDTH, ROOM, KEYS)), NATIVE)
    if MASKED:
        n = start + tl.arange(0, KEYS)
        seen = ((n >= first) & (n < stop))[None, :]
        if CAUSAL:
            seen &= n[None, :] <= position[:, None]
        logits = tl.where(seen, logits, -float("inf"))
    top = tl.maximum(high, tl.max(logits, 1))
    # the maximum of a query that has seen no key is -inf
    base = tl.where(top == -float("inf"), 0.0, top)
    total = total * tl.exp2((high - base) * scale)
    return top, total + tl.sum(tl.exp2((logits - base[:, None]) * scale), 1)


@triton.jit
def store_sums(sums, row, rows, high, total, final):
    """Write maximum and inverse sum for the second pass if `final`, else the partial max and sum.

    A weight is the exponential of its logit minus the first number, times the second. For a query
    that sees no key every weight is 0.
    """
    sees_any = total > 0
    high = tl.where(sees_any | (not final), high, float("inf"))
    total = tl.where(sees_any & final, 1.0 / tl.where(sees_any, total, 1.0), total)
    tl.store(sums + row * 2, high, mask=rows)
    tl.store(sums + row * 2 + 1, total, mask=rows)


@triton.jit(do_not_specialize=["rows", "count", "tokens", "blocks", "splits", "share", "all_rows"])
def sums_kernel(
    queries, keys, padding, sums, rows, count, tokens, group, kv_heads, blocks, splits, share,
    all_rows, scale,
    CAUSAL: tl.constexpr, STACKED: tl.constexpr, WIDTH: tl.constexpr,
    ROOM: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, NATIVE: tl.constexpr,
):  # fmt: skip
    """Write the largest logit and sum of exponentials of a block of queries over a share of keys.

    A program has `rows` queries: `count` of one head, or if STACKED those of all heads of a group.
    """
    number = tl.program_id(0)
    split = number % splits
    block = blocks - 1 - number // splits % blocks  # the longest blocks run first
    part = (number // splits // blocks).to(tl.int64)
    head = part if STACKED else part // group
    r0 = block * ROWS
    r = r0 + tl.arange(0, ROWS)
    before = tokens - count
    position = before + (r % count if STACKED else r)
    start, stop = split * share, tl.minimum((split + 1) * share, tokens)
    low = before if STACKED else before + r0
    if CAUSAL and not STACKED:
        stop = tl.minimum(stop, low + ROWS)
    whole = tl.minimum(stop, low + 1) if CAUSAL else stop
    first = 0
    if padding is not None:
        first = tl.load(padding + head // kv_heads).to(tl.int32)
        start = tl.maximum(start, first // KEYS * KEYS)
    keys += head * tokens * WIDTH
    query = tile(queries + part * rows * WIDTH, r0, rows, WIDTH, ROOM, ROWS)
    high = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    # tiles that all queries see need no mask
    middle = start + tl.maximum(whole - start, 0) // KEYS * KEYS
    for rest in tl.static_range(2):
        for n0 in range(middle if rest else start, stop if rest else middle, KEYS):
            high, total = update_sums(
                high, total, query, position, keys, n0, stop, first, scale,
                CAUSAL, rest or padding is not None, WIDTH, ROOM, KEYS, NATIVE,
            )  # fmt: skip
    if padding is not None:  # a query at padding sees no key
        total = tl.where(position >= first, total, 0.0)
    here = split.to(tl.int64) * all_rows + part * rows + r
    store_sums(sums, here, r < rows, high, total, splits == 1)


@triton.jit(do_not_specialize=["rows", "splits"])
def join_kernel(parts, sums, rows, splits, scale, ROWS: tl.constexpr, SPLITS: tl.constexpr):
    """Write the largest logit and the inverse sum of each query, merged from its splits."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    s = tl.arange(0, SPLITS).to(tl.int64)
    there = (s < splits)[None, :] & (row < rows)[:, None]
    here = parts + (s[None, :] * rows + row[:, None]) * 2
    high = tl.load(here, mask=there, other=-float("inf"))
    total = tl.load(here + 1, mask=there, other=0.0)
    top = tl.max(high, 1)
    base = tl.where(top == -float("inf"), 0.0, top)
    total = tl.sum(total * tl.exp2((high - base[:, None]) * scale), 1)
    store_sums(sums, row, row < rows, top, total, True)


@triton.jit
def add_weights(
    drawn, key, queries, sums, row, start, rows, n, before, first, count, scale,
    MASKED: tl.constexpr, GIVEN: tl.constexpr, STACKED: tl.constexpr, WIDTH: tl.constexpr,
    ROOM: tl.constexpr, ROWS: tl.constexpr, NATIVE: tl.constexpr,
):  # fmt: skip
    """Return the mass of keys after adding the weights of one more tile of queries."""
    r = start + tl.arange(0, ROWS)
    position = before + (r % count if STACKED else r)
    query = tile(queries + row * WIDTH, start, rows, WIDTH, ROOM, ROWS)
    if GIVEN:
        there = (r < rows) & (position >= first)
        base = widened(tl.load(sums + row + r, mask=there, other=float("inf")))
    else:
        base = tl.load(sums + (row + r) * 2, mask=r < rows, other=float("inf"))
        share = tl.load(sums + (row + r) * 2 + 1, mask=r < rows, other=0.0)
    logits = product(key, tl.trans(query), NATIVE)
    if MASKED:
        logits = tl.where(position[None, :] >= n[:, None], logits, -float("inf"))
    if GIVEN:
        above = tl.fma(logits, scale, -base[None, :])
        return drawn + tl.sum(tl.exp2(above * 1.4426950408889634), 1)
    else:
        above = (logits - base[None, :]) * scale
        return drawn + tl.sum(tl.exp2(above) * share[None, :], 1)


@triton.jit(do_not_specialize=["rows", "count", "tokens", "parts", "before_mass", "blocks"])
def mass_kernel(
    queries, keys, padding, sums, mass, drawn, rows, count, tokens, group, kv_heads, parts,
    before_mass, blocks, scale,
    CAUSAL: tl.constexpr, GIVEN: tl.constexpr, STACKED: tl.constexpr, WIDTH: tl.constexpr,
    ROOM: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, NATIVE: tl.constexpr,
):  # fmt: skip
    """Write the attention mass of a block of keys, over `parts` stretches of `rows` queries."""
    number = tl.program_id(0)
    line = (number // blocks).to(tl.int64)
    n0 = number % blocks * KEYS
    n = n0 + tl.arange(0, KEYS)
    row = line * parts * rows
    head = row // count // group
    key = tile(keys + head * tokens * WIDTH, n0, tokens, WIDTH, ROOM, KEYS)
    before, first = tokens - count, 0
    if padding is not None:
        first = tl.load(padding + head // kv_heads).to(tl.int32)
    begin, whole = 0, rows if CAUSAL else 0
    if CAUSAL and not STACKED:
        begin = tl.maximum(n0 - before, 0) // ROWS * ROWS
        whole = tl.minimum(tl.cdiv(tl.maximum(n0 + KEYS - 1 - before, 0), ROWS) * ROWS, rows)
    total = tl.zeros([KEYS], tl.float32)
    for _ in range(parts):
        for rest in tl.static_range(2):  # queries that see the whole tile need no mask
            for start in range(whole if rest else begin, rows if rest else whole, ROWS):
                total = add_weights(
                    total, key, queries, sums, row, start, rows, n, before, first, count, scale,
                    rest == 0, GIVEN, STACKED, WIDTH, ROOM, ROWS, NATIVE,
                )  # fmt: skip
        row += rows
    if mass is not None:
        here = mass + line * before_mass + n
        total += widened(tl.load(here, mask=n < before_mass, other=0.0))
    if padding is not None:
        total = tl.where(n >= first, total, 0.0)
    tl.store(drawn + line * tokens + n, total, mask=n < tokens)


def columns(
    queries: Tensor,
    keys: Tensor,
    valid: Tensor | None = None,
    mass: Tensor | None = None,
    log_sum_exp: Tensor | None = None,
    causal: bool = True,
    apart: bool = False,
) -> Tensor:
    """Return the attention mass of each token, added to `mass`.

    There is one row per key head, or one per query head if `apart`. If `log_sum_exp` is given, the
    first pass is skipped.
    """
    *batch, heads, count, width = queries.shape
    kv_heads, tokens = keys.shape[-3:-1]
    group, lines = heads // kv_heads, math.prod(batch) * heads
    queries, keys = queries.contiguous(), keys.contiguous()
    padding = None if valid is None else (~valid).sum(-1).flatten()
    block, half = sizes(queries, keys)
    given = log_sum_exp is not None
    scale = (1.0 if given else math.log2(math.e)) / math.sqrt(width)
    exact = dict(dtype=torch.float32)
    stacked, wide = count <= half, max(queries.itemsize, keys.itemsize) > 2
    common = dict(
        CAUSAL=causal, WIDTH=width, ROOM=padded_width(width),
        NATIVE=multiplies_stored_dtype(sums_kernel, queries, keys),
        # products of float32, which do not use tensor cores, and those of a window of queries
        # need more registers than four warps have
        num_warps=8 if wide or (stacked and group * count > half) else 4,
    )  # fmt: skip

    if log_sum_exp is None:
        rows = group * count if stacked else count
        size = min(block, max(half // 4, triton.next_power_of_2(rows)))
        blocks = triton.cdiv(rows, size)
        programs = lines * count // rows * blocks
        # at least two where several fit: the kernels of a long text are those of a short one
        fit = min(FIT * multiprocessors(keys.device) // programs, SPLITS)
        splits = max(1, min(fit, max(2, triton.cdiv(tokens, block))))
        share = triton.cdiv(triton.cdiv(tokens, splits), half) * half
        sums = keys.new_empty((lines * count, 2), **exact)
        found = sums if splits == 1 else keys.new_empty((splits, *sums.shape), **exact)
        sums_kernel[(programs * splits,)](
            queries, keys, padding, found, rows, count, tokens, group, kv_heads, blocks,
            splits, share, len(sums), scale, STACKED=stacked, ROWS=size, KEYS=half, **common,
        )  # fmt: skip
        if splits > 1:
            join_kernel[(triton.cdiv(len(sums), half),)](
                found, sums, len(sums), splits, scale, ROWS=half, SPLITS=SPLITS
            )
    else:
        sums = log_sum_exp.contiguous()

    stacked &= not apart
    rows = group * count if stacked else count
    parts = 1 if stacked or apart else group
    drawn = keys.new_empty((*batch, heads if apart else kv_heads, tokens), **exact)
    before = 0 if mass is None else mass.shape[-1]
    blocks = triton.cdiv(tokens, block)
    mass_kernel[(drawn.numel() // tokens * blocks,)](
        queries, keys, padding, sums, None if mass is None else mass.contiguous(), drawn,
        rows, count, tokens, group, kv_heads, parts, before, blocks, scale,
        GIVEN=given, STACKED=stacked, KEYS=block,
        ROWS=min(half, max(half // 4, triton.next_power_of_2(rows))), **common,
    )  # fmt: skip
    return drawn


def sizes(queries: Tensor, keys: Tensor) -> tuple[int, int]:
    """Return the numbers of keys and of queries in a tile of the second pass."""
    large = max(queries.itemsize, keys.itemsize) > 2 or queries.shape[-1] > 128
    block = max(1, BLOCK // 4) if large else BLOCK
    return block, max(1, block // 2)


@gradient_fallback(vector.attention_mass)
def attention_mass(
    queries: Tensor,
    keys: Tensor,
    span: int | None,
    causal: bool,
    normalize: bool,
    log_sum_exp: Tensor | None,
) -> Tensor:
    if not kernels_support(queries, keys, log_sum_exp):
        return vector.attention_mass(queries, keys, span, causal, normalize, log_sum_exp)
    tokens, count = keys.shape[-2], queries.shape[-2]
    mass = columns(queries, keys, log_sum_exp=log_sum_exp, causal=causal).sum(-2)
    checks.refuse_overflow("queries", mass)
    if normalize and causal:
        mass /= torch.arange(tokens, 0, -1, device=keys.device).clamp(1, count)
    elif normalize:
        mass /= count
    return mass[..., 0 if span is None else tokens - span :].clone()
