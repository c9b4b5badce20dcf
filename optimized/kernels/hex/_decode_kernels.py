"""The kernels of a decoding step over a HEX cache.

A program has some tiles of a key head and up to eight of its query heads, the columns. Programs of
`kcvt_kernel` or `sparse_kernel` write partial outputs over tiles, those of `residual_kernel` over
the residual buffer, which they also add the new token to. `merge_kernel` merges them by their
largest logits and the logarithms of their sums of exponentials. `mass_kernel` sums weights over
heads.
"""

# pyright: reportArgumentType=false

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from optimized.kernels._numerics import round_to_dtype, widened
from optimized.kernels.hex._codes import (
    ASKED,
    add_values_of_codes,
    scaled_queries,
    tile_logits,
    tokens_of,
)
from optimized.kernels.hex._sparse_entries import (
    add_keys,
    add_values,
    write_entry_starts,
    write_queries,
)

COLUMNS = 8
"""The most query heads of a program."""
UNIT = tl.constexpr(32768.0)
"""The scale of numbers of at most 1 in half precision, so that small ones keep their bits."""
LOWEST = tl.constexpr(-3.0e38)
"""The running maximum before the first logit: finite, so that differences to it are numbers."""
SPAN, TOKENS, MASKS, FIRST = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2), tl.constexpr(3)
"""The columns of the table of tiles."""


class Codes(NamedTuple):
    """The words of keys or of values, and the steps and minima of their groups."""

    words: Tensor
    steps: Tensor
    minima: Tensor


class Entries(NamedTuple):
    """The kept entries of a cache, the tables of its static masks, and scratch memory."""

    kept_keys: Tensor
    kept_values: Tensor
    begins: Tensor
    dynamic: Tensor
    counts: Tensor
    tokens: Tensor
    channels: Tensor
    columns: Tensor
    places: Tensor
    scratch: Tensor


class Residual(NamedTuple):
    """A residual buffer: memory for `room` tokens of each head, and how many there are."""

    residual_keys: Tensor
    residual_values: Tensor
    filled: Tensor


class Token(NamedTuple):
    """The key and the value that each head adds to its residual buffer."""

    key: Tensor
    value: Tensor


class Sizes(NamedTuple):
    """Sizes that stay the same while tokens are generated."""

    rows: int
    heads: int
    group: int  # query heads of a key head
    parts: int  # of the query heads of a key head
    value_heads: int  # 1 if heads share the scales of values


@triton.jit
def zeros(COUNT: tl.constexpr, ROWS: tl.constexpr, C: tl.constexpr):
    """Return COUNT tiles of zeros."""
    tiles = ()
    for _ in tl.static_range(COUNT):
        tiles += (tl.zeros([ROWS, C], tl.float32),)
    return tiles


@triton.jit
def columns_of(pid, size, C: tl.constexpr):
    """Return the first query head of a program, and how many it has."""
    part = pid % size.parts
    return pid // size.parts * size.group + part * C, tl.minimum(size.group - part * C, C)


@triton.jit
def reach_of(reach):
    """Return the largest step of values of a head, or 1 where all are 0."""
    far = tl.load(reach)
    return tl.where(far > 0, far, 1.0)


@triton.jit
def tile_weights(
    s, scale, top, below, tokens, largest, logits, columns,
    BITS: tl.constexpr, C: tl.constexpr, HELD: tl.constexpr,
):  # fmt: skip
    """Return the weights of a tile, the new largest logit, and how much older weights fade."""
    g = tl.arange(0, C)
    worth = (top - ASKED).to(tl.float32, bitcast=True) * scale
    seen, higher = (), largest
    for part in tl.static_range(len(s)):
        token = tokens_of(part, BITS)
        x = s[part] * worth[None, :] + (below * scale)[None, :]
        x = tl.where((token < tokens)[:, None], x, -float("inf"))
        if logits is not None:
            tl.store(logits + token[:, None] * HELD + g[None, :], x, mask=(g < columns)[None, :])
        higher = tl.maximum(higher, tl.max(x, 0))
        seen += (x,)
    weights = ()
    for part in tl.static_range(len(s)):
        weights += (tl.exp2(seen[part] - higher[None, :]),)
    return weights, higher, tl.exp2(largest - higher)


@triton.jit
def sum_of(weights, total):
    """Return a sum with the weights of a tile added."""
    for part in tl.static_range(len(weights)):
        total += tl.sum(weights[part], 0)
    return total


@triton.jit
def scales_of(tiles, tile, head, heads, WIDTH: tl.constexpr):
    """Return the place of the steps and minima of a tile's keys, those of its span."""
    return (tl.load(tiles + 4 * tile + SPAN) * heads + head) * WIDTH


@triton.jit
def write_partial(
    o, minima, far, kept, largest, total, found, norms, split, WIDTH: tl.constexpr,
    GROUP: tl.constexpr, C: tl.constexpr, HELD: tl.constexpr,
):  # fmt: skip
    """Write the mean of some values, their largest logit, and the logarithm of their weights' sum.

    What `kept` values add lies at the place of the output already. A program without tokens writes
    zeros and the lowest logit, whose weight is 0.
    """
    g = tl.arange(0, C)
    real = g < HELD
    total = tl.where(total > 0, total, 1.0)
    share = (1.0 / total)[None, :]
    for i in tl.static_range(len(o)):
        pointers = (
            found + (split * WIDTH + i * GROUP + tl.arange(0, GROUP))[:, None] * HELD + g[None, :]
        )
        x = o[i] * far + minima[None, :]
        if kept:
            x += tl.load(pointers, mask=real[None, :], other=0.0)
        tl.store(pointers, x * share, mask=real[None, :])
    norm = norms + split * (2 * HELD) + g
    tl.store(norm, largest, mask=real)
    tl.store(norm + HELD, tl.log2(total), mask=real)


@triton.jit(do_not_specialize=["count", "share", "splits", "stored"])
def kcvt_kernel(
    queries, scale, keys, values, reach, tiles, logits, found, norms, size,
    count, share, splits, stored,
    BITS: tl.constexpr, WIDTH: tl.constexpr, C: tl.constexpr, HELD: tl.constexpr,
):  # fmt: skip
    """Write the attention to some tiles of codes."""
    GROUP: tl.constexpr = 16 if BITS == 3 else WIDTH // 4  # channels of a product
    pid = tl.program_id(0).to(tl.int64)
    first, columns = columns_of(pid, size, C)
    head, heads = pid // size.parts, size.rows * size.heads  # counted through all rows
    value_row = head // size.heads * size.value_heads + head % size.heads % size.value_heads
    queries += first * WIDTH
    far = reach_of(reach + value_row)
    largest, total = tl.full([C], LOWEST, tl.float32), tl.zeros([C], tl.float32)
    o, minima = zeros(WIDTH // GROUP, GROUP, C), tl.zeros([C], tl.float32)
    start = tl.program_id(1) * share
    for tile in range(start, tl.minimum(start + share, count)):
        words = (tile * heads + head) * (3 * WIDTH * BITS)
        group = scales_of(tiles, tile, head, heads, WIDTH)
        pairs, top, below = scaled_queries(
            queries, columns, keys.steps + group, keys.minima + group, WIDTH, 1,
            WIDTH, GROUP, C, HELD,
        )  # fmt: skip
        s = tile_logits(keys.words + words, pairs, None, top, BITS, WIDTH, GROUP, C, HELD)
        here = None
        if logits is not None:
            here = logits + (pid * stored + tile * 96) * HELD
        tokens = tl.load(tiles + 4 * tile + TOKENS).to(tl.int32)
        weights, largest, fade = tile_weights(
            s, scale, top, below, tokens, largest, here, columns, BITS, C, HELD
        )
        total = sum_of(weights, total * fade)
        lies = (tile * size.rows * size.value_heads + value_row) * 96
        o, minima = add_values_of_codes(
            o, minima, fade, weights, values.words + words, values.steps + lies,
            values.minima + lies, UNIT / far, BITS, WIDTH, GROUP,
        )  # fmt: skip
    split = pid * splits + tl.program_id(1)
    write_partial(
        o, minima, far * (1.0 / UNIT), False, largest, total, found, norms, split,
        WIDTH, GROUP, C, HELD,
    )  # fmt: skip


@triton.jit(do_not_specialize=["count", "share", "splits", "stored"])
def sparse_kernel(
    queries, scale, keys, values, reach, tiles, entries, logits, found, norms, size,
    count, share, splits, stored,
    BITS: tl.constexpr, WIDTH: tl.constexpr, C: tl.constexpr, HELD: tl.constexpr,
):  # fmt: skip
    """Write the attention to some tiles of codes, with the entries that are kept among them."""
    GROUP: tl.constexpr = 16 if BITS == 3 else WIDTH // 4
    pid = tl.program_id(0).to(tl.int64)
    first, columns = columns_of(pid, size, C)
    head, heads = pid // size.parts, size.rows * size.heads
    value_row = head // size.heads * size.value_heads + head % size.heads % size.value_heads
    reach += value_row
    split = pid * splits + tl.program_id(1)
    out, g = found + split * WIDTH * HELD, tl.arange(0, C)
    number = pid * tl.num_programs(1) + tl.program_id(1)
    scratch = entries.scratch + number * (128 + (97 + 96 + WIDTH) * HELD)
    begins = scratch.to(tl.pointer_type(tl.int32), bitcast=True)
    bias = scratch + 128
    fades, powers, turned = bias + 96 * HELD, bias + 97 * HELD, bias + (97 + 96) * HELD
    write_queries(queries + first * WIDTH, columns, turned, WIDTH, HELD)
    # the contribution of kept values accumulates in the memory of the partial output
    every = tl.arange(0, WIDTH * HELD)
    tl.store(out + every, tl.zeros([WIDTH * HELD], tl.float32))
    largest, total = tl.full([C], LOWEST, tl.float32), tl.zeros([C], tl.float32)
    o, minima = zeros(WIDTH // GROUP, GROUP, C), tl.zeros([C], tl.float32)
    start = tl.program_id(1) * share
    for tile in range(start, tl.minimum(start + share, count)):
        words = (tile * heads + head) * (3 * WIDTH * BITS)
        group = scales_of(tiles, tile, head, heads, WIDTH)
        table = tl.load(tiles + 4 * tile + MASKS).to(tl.int32) * size.heads + head % size.heads
        flags = entries.dynamic + (tile * size.rows + head // size.heads) * 96
        entry = tl.load(entries.begins + tile * heads + head)
        write_entry_starts(begins, flags, entries.counts + table * 128, WIDTH)
        tl.debug_barrier()
        add_keys(
            bias, turned, entries.kept_keys + entry, keys.minima + group, begins,
            entries.tokens + table * (96 * 2), entries.channels, WIDTH, HELD,
        )  # fmt: skip
        tl.debug_barrier()
        pairs, top, below = scaled_queries(
            turned, HELD, keys.steps + group, keys.minima + group, 1, HELD,
            WIDTH, GROUP, C, HELD,
        )  # fmt: skip
        s = tile_logits(keys.words + words, pairs, bias, top, BITS, WIDTH, GROUP, C, HELD)
        here = None
        if logits is not None:
            here = logits + (pid * stored + tile * 96) * HELD
        tokens = tl.load(tiles + 4 * tile + TOKENS).to(tl.int32)
        weights, largest, fade = tile_weights(
            s, scale, top, below, tokens, largest, here, columns, BITS, C, HELD
        )
        total = sum_of(weights, total * fade)
        for part in tl.static_range(len(weights)):
            pointers = powers + tokens_of(part, BITS)[:, None] * HELD + g[None, :]
            tl.store(pointers, weights[part], mask=(g < HELD)[None, :])
        lies = (tile * size.rows * size.value_heads + value_row) * 96
        o, minima = add_values_of_codes(
            o, minima, fade, weights, values.words + words, values.steps + lies,
            values.minima + lies, UNIT / reach_of(reach), BITS, WIDTH, GROUP,
        )  # fmt: skip
        tl.store(fades + g, fade, mask=g < HELD)
        tl.debug_barrier()
        add_values(
            out, powers, fades, entries.kept_values + entry, values.minima + lies, begins,
            entries.columns + table * (WIDTH * 2), entries.places, WIDTH, HELD,
        )  # fmt: skip
        tl.debug_barrier()
    write_partial(
        o, minima, reach_of(reach) * (1.0 / UNIT), True, largest, total, found, norms, split,
        WIDTH, GROUP, C, HELD,
    )  # fmt: skip


@triton.jit(do_not_specialize=["room", "splits", "before", "stored", "there"])
def residual_kernel(
    queries, scale, residual, new, logits, found, norms, size, room, splits, before, stored, there,
    WIDTH: tl.constexpr, C: tl.constexpr, HELD: tl.constexpr,
):  # fmt: skip
    """Write the attention to 16 tokens of the residual buffer in every stride of the programs.

    A new token is written behind the others by the programs that attend to it, then read again.
    """
    SLICES: tl.constexpr = WIDTH // 32  # of channels, so that registers suffice
    pid = tl.program_id(0).to(tl.int64)
    first, columns = columns_of(pid, size, C)
    head = pid // size.parts
    queries += first * WIDTH
    keys, values = (
        residual.residual_keys + head * room * WIDTH,
        residual.residual_values + head * room * WIDTH,
    )
    g, t, c = tl.arange(0, C), tl.arange(0, 16), tl.arange(0, 32)
    real = (g < columns)[None, :]
    tokens = tl.load(residual.filled).to(tl.int32)
    if new is not None:
        last = tl.minimum(tokens, room - 1)  # a step too many must not write behind the memory
        mine, every = last // 16 % tl.num_programs(1) == tl.program_id(1), tl.arange(0, WIDTH)
        fresh, behind = head * WIDTH + every, last * WIDTH + every
        tl.store(keys + behind, tl.load(new.key + fresh), mask=mine)
        tl.store(values + behind, tl.load(new.value + fresh), mask=mine)
        tl.debug_barrier()
        tokens = last + 1
    largest, total = tl.full([C], LOWEST, tl.float32), tl.zeros([C], tl.float32)
    o = zeros(SLICES, 32, C)
    for start in range(16 * tl.program_id(1), tokens, 16 * tl.num_programs(1)):
        token = start + t
        offset = token * WIDTH
        s = tl.zeros([16, C], tl.float32)
        for i in tl.static_range(SLICES):
            channel = i * 32 + c
            q = tl.load(queries + g[None, :] * WIDTH + channel[:, None], mask=real, other=0.0)
            k = offset[:, None] + channel[None, :]
            read = tl.load(keys + k, mask=(token < tokens)[:, None], other=0.0)
            s = tl.dot(widened(read), widened(q), s, input_precision="ieee")
        s = tl.where((token < tokens)[:, None], s * scale, -float("inf"))
        if logits is not None:
            here = logits + (pid * stored + there + token)[:, None] * HELD + g[None, :]
            tl.store(here, s, mask=(token < tokens)[:, None] & real)
        higher = tl.maximum(largest, tl.max(s, 0))
        fade = tl.exp2(largest - higher)
        largest = higher
        p = tl.exp2(s - largest[None, :])
        total = total * fade + tl.sum(p, 0)
        mixed = ()
        for i in tl.static_range(SLICES):
            channel = i * 32 + c
            v = offset[None, :] + channel[:, None]
            read = tl.load(values + v, mask=(token < tokens)[None, :], other=0.0)
            mixed += (tl.dot(widened(read), p, o[i] * fade[None, :], input_precision="ieee"),)
        o = mixed
    split = pid * splits + before + tl.program_id(1)
    none = tl.zeros([C], tl.float32)
    write_partial(o, none, 1.0, False, largest, total, found, norms, split, WIDTH, 32, C, HELD)


@triton.jit(do_not_specialize=["splits"])
def merge_kernel(
    found, norms, output, whole, counted, size, splits,
    WIDTH: tl.constexpr, C: tl.constexpr, HELD: tl.constexpr, MANY: tl.constexpr,
):  # fmt: skip
    """Write the output of some columns: the mean of partial ones, weighted by their sums.

    A new token that the residual buffer got in this step is counted, once all programs have read
    how many there were.
    """
    pid = tl.program_id(0).to(tl.int64)
    if counted is not None:
        first = (tl.program_id(0) == 0) & (tl.program_id(1) == 0)
        tl.store(counted, tl.load(counted) + 1, mask=first)
    head, columns = columns_of(pid, size, C)
    lane = tl.arange(0, 32 * HELD)
    g, channel = lane % HELD, tl.program_id(1) * 32 + lane // HELD
    largest = tl.full([32 * HELD], LOWEST, tl.float32)
    total = tl.zeros([32 * HELD], tl.float32)
    o = tl.zeros([32 * HELD], tl.float32)
    for start in range(0, splits, MANY):
        split = start + tl.arange(0, MANY)
        there = (split < splits)[:, None]
        slot = (pid * splits + split)[:, None]
        here = norms + slot * (2 * HELD) + g[None, :]
        norm = tl.load(here, mask=there, other=-float("inf"))
        log_sum = tl.load(here + HELD, mask=there, other=0.0)
        read = found + (slot * WIDTH + tl.program_id(1) * 32) * HELD + lane[None, :]
        read = tl.load(read, mask=there, other=0.0)
        higher = tl.maximum(largest, tl.max(norm, 0))
        fade = tl.exp2(largest - higher)
        largest = higher
        weight = tl.exp2((norm - largest[None, :]) + log_sum)
        total = total * fade + tl.sum(weight, 0)
        o = o * fade + tl.sum(weight * read, 0)
    slot = output + (head + g) * WIDTH + channel
    tl.store(slot, round_to_dtype(o / total, output.dtype.element_ty), mask=g < columns)
    tl.store(whole + pid * 2 * HELD + g, largest, mask=channel == 0)
    tl.store(whole + (pid * 2 + 1) * HELD + g, tl.log2(total), mask=channel == 0)


@triton.jit(do_not_specialize=["pieces", "count", "stored", "room", "length"])
def mass_kernel(
    logits, whole, mass, tiles, counted, size, pieces, count, stored, room, length,
    C: tl.constexpr, HELD: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    """Write or add the attention mass of 96 tokens: weights summed over heads, in a fixed order.

    The first `count` pieces of a row are tiles, the others are parts of the residual buffer. A row
    of `mass` has `length` tokens; the last ones are those of the residual buffer.
    """
    row, piece = (tl.program_id(0) // pieces).to(tl.int64), tl.program_id(0) % pieces
    t, g = tl.arange(0, 128), tl.arange(0, HELD)
    if piece < count:
        tokens = tl.load(tiles + 4 * piece + TOKENS).to(tl.int32)
        first = tl.load(tiles + 4 * piece + FIRST).to(tl.int32)
    else:
        start = (piece - count) * 96
        tokens = tl.minimum(tl.minimum(tl.load(counted).to(tl.int32), room) - start, 96)
        first = length - room + start
    there = t < tokens
    sums = tl.zeros([128], tl.float32)
    for part in range(size.heads * size.parts):
        pid = row * size.heads * size.parts + part
        s = tl.load(
            logits + (pid * stored + piece * 96 + t)[:, None] * HELD + g[None, :],
            mask=there[:, None] & (part % size.parts * C + g < size.group)[None, :],
            other=-float("inf"),
        )
        here = whole + pid * 2 * HELD + g
        sums += tl.sum(tl.exp2((s - tl.load(here)[None, :]) - tl.load(here + HELD)[None, :]), 1)
    pointers = mass + row * length + first + t
    if ADD:
        sums += tl.load(pointers, mask=there, other=0.0)
    tl.store(pointers, sums, mask=there)
