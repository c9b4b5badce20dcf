"""Decode attention over a HEX cache: products with its codes in `optimized.hex_packed_layout`.

A program has some tiles of a key head and up to eight of its query heads, the columns. The steps of
the keys scale the queries, and their minima add one number per column. The steps and minima of the
values scale the weights. Programs write partial outputs, which a second kernel merges by their
largest logits and the logarithms of their sums of exponentials. Another kernel attends to the
residual buffer. All else falls back to PyTorch: see `taken`.
"""

# pyright: reportArgumentType=false

from math import e, log2, sqrt
from typing import NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from optimized import vector
from optimized._dispatch import gradient_fallback
from optimized.hex_packed_layout import TILE, PackedCache, PackedSpans
from optimized.kernels._numerics import round_to_dtype, widened
from optimized.kernels.hex._sparse_entries import (
    ROOM,
    add_keys,
    add_values,
    tables,
    write_entry_starts,
)
from optimized.vector.hex.stacked_cache import cached_on_tensor, mask_settings
from reference.hex.attention import HexAttention
from reference.hex.cache import HexCache
from reference.hex.presets import HexConfig

COLUMNS = 8
PROGRAMS = 2112  # of one warp: sixteen for each multiprocessor of an H100
TAKEN = {(3, 128), (4, 64), (4, 128)}
"""The bits of codes and the channels of heads that the kernels are made for."""
REGISTERS = {} if torch.version.hip or triton.knobs.runtime.interpret else dict(maxnreg=255)
"""The most registers of a lane: by default the assembler allocates fewer, and spills."""
MERGED = 8 if triton.knobs.runtime.interpret else 64
"""Partial outputs times columns that a program merges at a time, so that loads overlap."""
UNIT = tl.constexpr(32768.0)
"""The scale of numbers of at most 1 in half precision, so that small ones keep their bits."""
ASKED = tl.constexpr(14 << 23)
"""An exponent of 14 in the bits of a float: a query's largest product is scaled to about 2^14."""
LOWEST = tl.constexpr(-3.0e38)
"""The running maximum before the first logit: finite, so that differences to it are numbers."""


class Codes(NamedTuple):
    """The words of keys or of values, and the steps and minima of their groups."""

    words: Tensor
    steps: Tensor
    minima: Tensor


class Entries(NamedTuple):
    """The kept entries of a run, the tables of its static mask, and scratch memory."""

    kept_keys: Tensor
    kept_values: Tensor
    firsts: Tensor
    dynamic: Tensor
    counts: Tensor
    tokens: Tensor
    channels: Tensor
    columns: Tensor
    places: Tensor
    scratch: Tensor


class Sizes(NamedTuple):
    """The sizes of a run that stay the same while tokens are generated."""

    tiles: int  # of a span
    length: int  # tokens of a span
    rows: int
    heads: int
    parts: int  # of the query heads of a key head
    value_heads: int  # 1 if heads share the scales of values


@triton.jit
def halves(words, MASK: tl.constexpr, ONE: tl.constexpr):
    """Return the masked codes of the low and the high half of words, joined along the last axis.

    In half precision, the bits of 1024 with a code times ONE as low bits are the number 1024 plus
    the code times ONE.
    """
    words = (words & MASK) | 0x64006400
    low = (words & 0xFFFF).to(tl.uint16).to(tl.float16, bitcast=True)
    high = ((words >> 16) & 0xFFFF).to(tl.uint16).to(tl.float16, bitcast=True)
    both = tl.join(low, high)
    return tl.reshape(both, (both.shape[0], 2 * both.shape[1])) * (1.0 / ONE) - 1024.0 / ONE


@triton.jit
def field(words, i: tl.constexpr, BITS: tl.constexpr):
    """Return the i-th codes of each half.

    A number of half precision has ten bits of mantissa. Codes in higher bits are shifted into them,
    as many at once as fit.
    """
    FIT: tl.constexpr = 10 // BITS
    ONE: tl.constexpr = 2 ** (BITS * (i % FIT))
    ONES: tl.constexpr = (2**BITS - 1) * 0x00010001
    return halves(words >> (BITS * (i // FIT * FIT)), ONES * ONE, ONE)


@triton.jit
def load_planes(at, BITS: tl.constexpr, WIDTH: tl.constexpr):
    """Return the words at some places of a tile, from each of its planes."""
    if BITS == 3:
        return tl.load(at), tl.load(at + 3 * WIDTH), tl.load(at + 6 * WIDTH)
    else:
        return (tl.load(at),)


@triton.jit
def codes_of(planes, u: tl.constexpr, BITS: tl.constexpr):
    """Return the codes of group u; of three bits, the last one lies in spare bits of the planes."""
    if BITS != 3:
        return field(planes[0], u, BITS)
    elif u < 15:
        return field(planes[u // 5], u % 5, 3)
    else:
        words = (planes[0] >> 15 & 0x00010001) | (planes[1] >> 14 & 0x00020002)
        return halves(words | (planes[2] >> 13 & 0x00040004), 0x00070007, 1)


@triton.jit
def tokens_of(part: tl.constexpr, BITS: tl.constexpr):
    """Return the tokens of a part of a tile; of three bits, two parts share words."""
    if BITS == 3:
        return part % 2 * 48 + part // 2 * 16 + tl.arange(0, 16)
    else:
        return part * 32 + tl.arange(0, 32)


@triton.jit
def spread(x, C: tl.constexpr):
    """Return numbers with columns of zeros appended, up to C columns."""
    if x.shape[-1] < C:
        both = tl.join(x, tl.zeros_like(x))
        if len(x.shape) == 1:
            both = tl.reshape(tl.permute(both, (1, 0)), (2 * x.shape[0],))
        else:
            both = tl.reshape(tl.permute(both, (0, 2, 1)), (x.shape[0], 2 * x.shape[1]))
        return spread(both, C)
    else:
        return x


@triton.jit
def split_float(x):
    """Return numbers of float32 as a sum of two of half precision."""
    near = x.to(tl.float16)
    return near, (x - near.to(tl.float32)).to(tl.float16)


@triton.jit
def full_tiles(value, COUNT: tl.constexpr, ROWS: tl.constexpr, C: tl.constexpr):
    """Return COUNT tiles filled with one number."""
    tiles = ()
    for _ in tl.static_range(COUNT):
        tiles += (tl.full([ROWS, C], value, tl.float32),)
    return tiles


@triton.jit
def scaled_queries(
    query, steps, minima, WIDTH: tl.constexpr, GROUP: tl.constexpr, C: tl.constexpr,
    HELD: tl.constexpr,
):  # fmt: skip
    """Return queries times steps, as pairs of halves, their scale, and what the minima add.

    Each column is scaled by a power of two, which is exact. The scale is an exponent in the bits of
    a float.
    """
    c, h = tl.arange(0, GROUP), tl.arange(0, HELD)
    below, most = tl.zeros([GROUP, HELD], tl.float32), tl.zeros([GROUP, HELD], tl.float32)
    asked = ()
    for i in tl.static_range(WIDTH // GROUP):
        at = i * GROUP + c
        q = tl.load(query + at[:, None] * HELD + h[None, :])
        below += q * widened(tl.load(minima + at))[:, None]
        q *= widened(tl.load(steps + at))[:, None]
        most = tl.maximum(most, tl.abs(q))
        asked += (q,)
    most = tl.max(most, 0)
    top = tl.where(most > 0, most, 1.0).to(tl.int32, bitcast=True) & 0x7F800000
    fit = (0x7F000000 - top + ASKED).to(tl.float32, bitcast=True)
    pairs = ()
    for i in tl.static_range(WIDTH // GROUP):
        near, rest = split_float(asked[i] * fit[None, :])
        pairs += (spread(near, C), spread(rest, C))
    return pairs, spread(top, C), spread(tl.sum(below, 0), C)


@triton.jit
def tile_logits(
    words, asked, bias, top, BITS: tl.constexpr, WIDTH: tl.constexpr, GROUP: tl.constexpr,
    C: tl.constexpr, HELD: tl.constexpr,
):  # fmt: skip
    """Return the products of scaled queries with the keys of a tile, part by part."""
    ROWS: tl.constexpr = 16 if BITS == 3 else 32
    EVERY: tl.constexpr = 2 if BITS == 3 else 1  # parts that share words
    GROUPS: tl.constexpr = WIDTH // GROUP
    g, t, j = tl.arange(0, C), tl.arange(0, ROWS), tl.arange(0, GROUP // 2)
    found = ()
    for part in tl.static_range(96 // ROWS):
        if part % EVERY == 0:
            row = part // EVERY * ROWS + t
            planes = load_planes(words + row[:, None] * (GROUP // 2) + j[None, :], BITS, WIDTH)
        if bias is not None:
            # the accumulator starts from the bias, so that it has the layout of products
            at = bias + tokens_of(part, BITS)[:, None] * HELD + g[None, :]
            x = tl.load(at, mask=(g < HELD)[None, :], other=0.0)
            x *= (0x7F000000 - top + ASKED).to(tl.float32, bitcast=True)[None, :]
        else:
            x = tl.zeros([ROWS, C], tl.float32)
        for i in tl.static_range(GROUPS):
            codes = codes_of(planes, part % EVERY * GROUPS + i, BITS)
            x = tl.dot(codes, asked[2 * i + 1], tl.dot(codes, asked[2 * i], x))
        found += (x,)
    return found


@triton.jit
def add_values_of_codes(
    o, minima, weights, words, steps, lows, left, inverse, BITS: tl.constexpr,
    WIDTH: tl.constexpr, GROUP: tl.constexpr, PARTIAL: tl.constexpr,
):  # fmt: skip
    """Return the sums of codes and of minima of values, with those of a tile added."""
    ROWS: tl.constexpr = 16 if BITS == 3 else 32
    EVERY: tl.constexpr = 2 if BITS == 3 else 1
    GROUPS: tl.constexpr = WIDTH // GROUP
    channel, r = tl.arange(0, GROUP), tl.arange(0, ROWS // 2)
    for part in tl.static_range(96 // ROWS):
        if part % EVERY == 0:
            row = part // EVERY * (ROWS // 2) + r
            planes = load_planes(words + row[None, :] * GROUP + channel[:, None], BITS, WIDTH)
        token = tokens_of(part, BITS)
        if PARTIAL:
            step = widened(tl.load(steps + token, mask=token < left, other=0.0))
            low = widened(tl.load(lows + token, mask=token < left, other=0.0))
        else:
            step, low = widened(tl.load(steps + token)), widened(tl.load(lows + token))
        minima += tl.sum(weights[part] * low[:, None], 0)
        near, rest = split_float(weights[part] * (step * inverse)[:, None])
        mixed = ()
        for i in tl.static_range(GROUPS):
            codes = codes_of(planes, part % EVERY * GROUPS + i, BITS)
            mixed += (tl.dot(codes, rest, tl.dot(codes, near, o[i])),)
        o = mixed
    return o, minima


@triton.jit(do_not_specialize=["all_tiles", "share", "splits", "first"])
def codes_kernel(
    query, scales, keys, values, reach, entries, logits, found, norms, size,
    all_tiles, share, splits, first,
    BITS: tl.constexpr, WIDTH: tl.constexpr, C: tl.constexpr, HELD: tl.constexpr,
    PARTIAL: tl.constexpr,
):  # fmt: skip
    """Write the attention to some tiles of codes, with the entries that are kept among them."""
    ROWS: tl.constexpr = 16 if BITS == 3 else 32  # tokens of a part
    GROUP: tl.constexpr = 16 if BITS == 3 else WIDTH // 4  # channels of a product
    PARTS: tl.constexpr = 96 // ROWS
    GROUPS: tl.constexpr = WIDTH // GROUP
    pid = tl.program_id(0).to(tl.int64)
    head = pid // size.parts  # counted through all rows
    value_row = head // size.heads * size.value_heads + head % size.heads % size.value_heads
    g = tl.arange(0, C)
    real = g < HELD  # other columns are zeros
    query += pid * WIDTH * HELD
    scale = tl.load(scales + pid * HELD + g, mask=real, other=0.0)
    far = tl.load(reach + value_row)
    far = tl.where(far > 0, far, 1.0)
    split = tl.program_id(0) * splits + first + tl.program_id(1)
    out = found + split.to(tl.int64) * WIDTH * HELD
    bias = None
    if entries is not None:
        number = pid * tl.num_programs(1) + tl.program_id(1)
        scratch = entries.scratch + number * (128 + (97 + 96) * HELD)
        begins = scratch.to(tl.pointer_type(tl.int32), bitcast=True)
        bias = scratch + 128
        fades, powers = bias + 96 * HELD, bias + 97 * HELD
        # the contribution of kept values accumulates in the memory of the partial output
        every = tl.arange(0, WIDTH * HELD)
        tl.store(out + every, tl.zeros([WIDTH * HELD], tl.float32))
    largest = tl.full([C], LOWEST, tl.float32)
    total = tl.zeros([C], tl.float32)
    minima = tl.zeros([C], tl.float32)
    o = full_tiles(0.0, GROUPS, GROUP, C)
    start = tl.program_id(1) * share
    for tile in range(start, tl.minimum(start + share, all_tiles)):
        span, within = tile // size.tiles, tile % size.tiles
        group = span.to(tl.int64) * size.rows * size.heads + head
        words = (group * size.tiles + within) * (3 * WIDTH * BITS)
        key_steps, key_minima = keys.steps + group * WIDTH, keys.minima + group * WIDTH
        left = size.length - within * 96
        if entries is not None:
            table = within * size.heads + head % size.heads
            row = span.to(tl.int64) * size.rows + head // size.heads
            flags = entries.dynamic + row * size.length + within * 96
            write_entry_starts(begins, flags, entries.counts + table * 128, left, WIDTH)
            tl.debug_barrier()
            entry = tl.load(entries.firsts + group * size.tiles + within)
            add_keys(
                bias, query, entries.kept_keys + entry, key_minima, begins,
                entries.tokens + table * (96 * 2), entries.channels, WIDTH, HELD,
            )  # fmt: skip
            tl.debug_barrier()
        asked, top, below = scaled_queries(query, key_steps, key_minima, WIDTH, GROUP, C, HELD)
        s = tile_logits(keys.words + words, asked, bias, top, BITS, WIDTH, GROUP, C, HELD)
        if logits is not None:  # loaded again to save registers
            scale = tl.load(scales + pid * HELD + g, mask=real, other=0.0)
        worth = (top - ASKED).to(tl.float32, bitcast=True) * scale
        below *= scale
        seen, higher = (), largest
        for part in tl.static_range(PARTS):
            token = tokens_of(part, BITS)
            x = s[part] * worth[None, :] + below[None, :]
            if PARTIAL:
                x = tl.where((token < left)[:, None], x, -float("inf"))
            if logits is not None:
                here = logits + (pid * all_tiles + tile) * (96 * HELD)
                tl.store(here + token[:, None] * HELD + g[None, :], x, mask=real[None, :])
            higher = tl.maximum(higher, tl.max(x, 0))
            seen += (x,)
        fade = tl.exp2(largest - higher)
        largest = higher
        total *= fade
        minima *= fade
        weights, faded = (), ()
        for part in tl.static_range(PARTS):
            p = tl.exp2(seen[part] - largest[None, :])
            total += tl.sum(p, 0)
            weights += (p,)
            if entries is not None:
                at = powers + tokens_of(part, BITS)[:, None] * HELD + g[None, :]
                tl.store(at, p, mask=real[None, :])
        for i in tl.static_range(GROUPS):
            faded += (o[i] * fade[None, :],)
        group = span.to(tl.int64) * size.rows * size.value_heads + value_row
        tokens = group * size.length + within * 96
        o, minima = add_values_of_codes(
            faded, minima, weights, values.words + words, values.steps + tokens,
            values.minima + tokens, left, UNIT / far, BITS, WIDTH, GROUP, PARTIAL,
        )  # fmt: skip
        if entries is not None:
            tl.store(fades + g, fade, mask=real)
            tl.debug_barrier()
            add_values(
                out, powers, fades, entries.kept_values + entry, values.minima + tokens, begins,
                entries.columns + table * (WIDTH * 2), entries.places, WIDTH, HELD,
            )  # fmt: skip
            tl.debug_barrier()
    share_of = (1.0 / total)[None, :]
    for i in tl.static_range(GROUPS):
        at = out + (i * GROUP + tl.arange(0, GROUP))[:, None] * HELD + g[None, :]
        x = o[i] * (far * (1.0 / UNIT)) + minima[None, :]
        if entries is not None:
            x += tl.load(at, mask=real[None, :], other=0.0)
        tl.store(at, x * share_of, mask=real[None, :])
    norm = norms + split.to(tl.int64) * (2 * HELD) + g
    tl.store(norm, largest, mask=real)
    tl.store(norm + HELD, tl.log2(total), mask=real)


@triton.jit(do_not_specialize=["tokens", "splits", "first"])
def residual_kernel(
    query, scales, keys, values, logits, found, norms, parts, tokens, splits, first,
    WIDTH: tl.constexpr, C: tl.constexpr, HELD: tl.constexpr,
):  # fmt: skip
    """Write the attention to 16 tokens of the residual buffer in every stride of the programs."""
    SLICES: tl.constexpr = WIDTH // 32  # of channels, so that registers suffice
    pid = tl.program_id(0).to(tl.int64)
    query += pid * WIDTH * HELD
    keys += pid // parts * tokens * WIDTH
    values += pid // parts * tokens * WIDTH
    g, t, c = tl.arange(0, C), tl.arange(0, 16), tl.arange(0, 32)
    real = (g < HELD)[None, :]
    scale = tl.load(scales + pid * HELD + g, mask=g < HELD, other=0.0)
    largest = tl.full([C], LOWEST, tl.float32)
    total = tl.zeros([C], tl.float32)
    o = full_tiles(0.0, SLICES, 32, C)
    for start in range(16 * tl.program_id(1), tokens, 16 * tl.num_programs(1)):
        there = start + t < tokens
        at = (start + t) * WIDTH
        s = tl.zeros([16, C], tl.float32)
        for i in tl.static_range(SLICES):
            channel = i * 32 + c
            q = tl.load(query + channel[:, None] * HELD + g[None, :], mask=real, other=0.0)
            k = tl.load(keys + at[:, None] + channel[None, :], mask=there[:, None], other=0.0)
            s = tl.dot(widened(k), q, s, input_precision="ieee")
        s = tl.where(there[:, None], s * scale[None, :], -float("inf"))
        if logits is not None:
            here = logits + (pid * tokens + start + t)[:, None] * HELD + g[None, :]
            tl.store(here, s, mask=there[:, None] & real)
        higher = tl.maximum(largest, tl.max(s, 0))
        fade = tl.exp2(largest - higher)
        largest = higher
        p = tl.exp2(s - largest[None, :])
        total = total * fade + tl.sum(p, 0)
        mixed = ()
        for i in tl.static_range(SLICES):
            v = values + at[None, :] + (i * 32 + c)[:, None]
            v = widened(tl.load(v, mask=there[None, :], other=0.0))
            mixed += (tl.dot(v, p, o[i] * fade[None, :], input_precision="ieee"),)
        o = mixed
    split = pid * splits + first + tl.program_id(1)
    for i in tl.static_range(SLICES):
        at = found + (split * WIDTH + i * 32 + c)[:, None] * HELD + g[None, :]
        tl.store(at, o[i] * (1.0 / total)[None, :], mask=real)
    norm = norms + split * (2 * HELD) + g
    tl.store(norm, largest, mask=g < HELD)
    tl.store(norm + HELD, tl.log2(total), mask=g < HELD)


@triton.jit(do_not_specialize=["splits"])
def merge_kernel(
    found, norms, output, whole, splits,
    WIDTH: tl.constexpr, C: tl.constexpr, MANY: tl.constexpr,
):  # fmt: skip
    """Write the output of some columns: the mean of partial ones, weighted by their sums."""
    pid = tl.program_id(0).to(tl.int64)
    some = tl.arange(0, 32 * C)
    g, channel = some % C, tl.program_id(1) * 32 + some // C
    largest = tl.full([32 * C], LOWEST, tl.float32)
    total = tl.zeros([32 * C], tl.float32)
    o = tl.zeros([32 * C], tl.float32)
    for start in range(0, splits, MANY):
        split = start + tl.arange(0, MANY)
        there = (split < splits)[:, None]
        place = (pid * splits + split)[:, None]
        here = norms + place * (2 * C) + g[None, :]
        norm = tl.load(here, mask=there, other=-float("inf"))
        more = tl.load(here + C, mask=there, other=0.0)
        read = found + (place * WIDTH + tl.program_id(1) * 32) * C + some[None, :]
        read = tl.load(read, mask=there, other=0.0)
        higher = tl.maximum(largest, tl.max(norm, 0))
        fade = tl.exp2(largest - higher)
        largest = higher
        weight = tl.exp2((norm - largest[None, :]) + more)
        total = total * fade + tl.sum(weight, 0)
        o = o * fade + tl.sum(weight * read, 0)
    place = output + (pid * C + g) * WIDTH + channel
    tl.store(place, round_to_dtype(o / total, output.dtype.element_ty))
    tl.store(whole + pid * 2 * C + g, largest, mask=channel == 0)
    tl.store(whole + (pid * 2 + 1) * C + g, tl.log2(total), mask=channel == 0)


@triton.jit(do_not_specialize=["tokens", "stored", "length", "padded", "total", "first"])
def mass_kernel(
    logits, whole, mass, tokens, stored, length, padded, parts, heads, group, total, first,
    C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the attention mass of some tokens: the sum of weights over heads, in a fixed order."""
    blocks = tl.cdiv(tokens, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    token = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    there = token < tokens
    at = token // length * padded + token % length  # spans are padded to whole tiles
    g = tl.arange(0, C)
    sums = tl.zeros([BLOCK], tl.float32)
    for part in range(heads * parts):
        pid = row * heads * parts + part
        s = tl.load(
            logits + (pid * stored + at)[:, None] * C + g[None, :],
            mask=there[:, None] & (part % parts * C + g < group)[None, :],
            other=-float("inf"),
        )
        here = whole + pid * 2 * C + g
        sums += tl.sum(tl.exp2((s - tl.load(here)[None, :]) - tl.load(here + C)[None, :]), 1)
    tl.store(mass + row * total + first + token, sums, mask=there)


def taken(queries: Tensor, cache: HexCache, valid: Tensor | None) -> bool:
    """Whether the kernels support the call: a decoding step without padding, in float32 at most."""
    exact = torch.promote_types(queries.dtype, cache.residual_keys.dtype)
    width = queries.shape[-1]
    return (
        exact != torch.float64
        and queries.shape[-2] == 1
        and queries.shape[-3] > 0
        and valid is None
        and cache.config.density < 1
        and bool(cache.blocks)
        and all((b.bits, width) in TAKEN and b.dynamic.numel() > 0 for b in cache.blocks)
    )


@gradient_fallback(vector.hex_attention)
def hex_attention(
    queries: Tensor,
    cache: HexCache,
    valid: Tensor | None,
    causal: bool,
    scale: float | None,
    mass: bool,
) -> HexAttention:
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        raise TypeError(
            "cache must be a PackedCache while a CUDA graph is captured, got a HexCache: lay it "
            "out by PackedCache.of(cache) and capture optimized.kernels.hex.attention.attend_packed"
        )
    if not taken(queries, cache, valid):
        return vector.hex_attention(queries, cache, valid, causal, scale, mass)
    return attend_packed(queries, PackedCache.of(cache), scale, mass)


def attend_packed(
    queries: Tensor,
    cache: PackedCache,
    scale: float | None = None,
    mass: bool = False,
    of_all: bool = True,
) -> HexAttention:
    """Return the attention of one query a head to a cache in the kernels' layout.

    The mass covers all tokens if `of_all`, otherwise only the residual buffer.
    """
    rest = cache.rest
    heads, residual, width = rest.residual_keys.shape[-3:]
    rows = rest.residual_mass.shape[:-1].numel()
    group = queries.shape[-3] // heads
    parts = triton.cdiv(group, COLUMNS)
    grid = rows * heads * parts
    held = COLUMNS if parts > 1 else triton.next_power_of_2(group)
    asked = queries.float().reshape(rows * heads, group, width)
    asked = F.pad(asked, (0, 0, 0, parts * held - group)).view(grid, held, width)
    tops = torch.linalg.vector_norm(asked, torch.inf, -1)
    tops = tops.clamp(min=torch.finfo(torch.float32).tiny)
    query = (asked / tops[..., None]).mT.contiguous()
    scales = tops * ((1 / sqrt(width) if scale is None else scale) * log2(e))
    counts = [len(run.entries) * run.tiles for run in cache.runs]
    shares = [triton.cdiv(count, max(1, PROGRAMS // max(1, grid))) for count in counts]
    programs = [triton.cdiv(*pair) for pair in zip(counts, shares, strict=True)]
    # programs for the residual buffer, launched with those of the first run
    extra = min(triton.cdiv(residual, 32), PROGRAMS)
    splits = sum(programs) + extra
    found = query.new_empty(grid, splits, width, held)
    norms = query.new_empty(grid, splits, 2, held)
    logits, first = [], 0
    for run, count, share, several in zip(cache.runs, counts, shares, programs, strict=True):
        logits += [query.new_empty(grid, count * TILE, held) if mass and of_all else None]
        value_heads = heads if run.value_steps.ndim == 4 else 1
        reach = run.value_steps.float().amax((0, -1)).contiguous()
        codes_kernel[(grid, several)](
            query, scales, Codes(run.key_words, run.key_steps, run.key_minima),
            Codes(run.value_words, run.value_steps, run.value_minima), reach,
            entries_of(run, rest.config, grid * several, held), logits[-1], found, norms,
            Sizes(run.tiles, run.length, rows, heads, parts, value_heads),
            count, share, splits, first,
            BITS=run.bits, WIDTH=width, C=COLUMNS, HELD=held, PARTIAL=run.length % TILE > 0,
            # the registers of one warp do not suffice for a pipelined loop that stores logits
            num_warps=1, num_stages=1 if mass else 2, **REGISTERS,
        )  # fmt: skip
        first += several
    if residual:
        logits += [query.new_empty(grid, residual, held) if mass else None]
        residual_kernel[(grid, extra)](
            query, scales, rest.residual_keys.contiguous(), rest.residual_values.contiguous(),
            logits[-1], found, norms, parts, residual, splits, first,
            WIDTH=width, C=COLUMNS, HELD=held, num_warps=1,
        )  # fmt: skip
    output = queries.new_empty(grid, held, width)
    whole = query.new_empty(grid, 2, held)
    merge_kernel[(grid, width // 32)](
        found, norms, output, whole, splits,
        WIDTH=width, C=held, MANY=max(1, MERGED // held), num_warps=1,
    )  # fmt: skip
    output = output.view(rows * heads, parts * held, width)[:, :group].reshape(queries.shape)
    if not mass:
        return HexAttention(output, None)
    # the tokens of each part, then those of a span without and with its padding to whole tiles
    lengths = [(len(run.entries) * run.length, run.length, run.tiles * TILE) for run in cache.runs]
    lengths += [(residual, residual, residual)] * (residual > 0)
    stored = [(*some, one) for some, one in zip(lengths, logits, strict=True) if one is not None]
    drawn = query.new_empty(rows, sum(tokens for tokens, *_ in stored))
    first = 0
    for tokens, length, padded, one in stored:
        mass_kernel[(rows * triton.cdiv(tokens, 128),)](
            one, whole, drawn, tokens, one.shape[1], length, padded, parts, heads, group,
            drawn.shape[1], first, C=held, BLOCK=128,
        )  # fmt: skip
        first += tokens
    return HexAttention(output, drawn.view(*rest.residual_mass.shape[:-1], -1))


def entries_of(run: PackedSpans, config: HexConfig, programs: int, held: int) -> Entries | None:
    """Return the kept entries of a run, with scratch memory for programs of `held` columns."""
    if not run.kept_keys.numel():
        return None
    asked = mask_settings(config), run.length, *run.key_steps.shape[-2:], run.dynamic.device
    table = cached_on_tensor(run.dynamic, tables, *asked)
    room = programs, ROOM + (2 * TILE + 1) * held
    scratch = run.kept_keys.new_empty(room, dtype=torch.float32)
    return Entries(run.kept_keys, run.kept_values, run.begins, run.dynamic, *table, scratch)
