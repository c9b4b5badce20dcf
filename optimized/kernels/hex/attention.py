"""Decode attention over a HEX cache: products with its codes in `optimized.hex_packed_layout`.

A program has some tiles of a key head and up to eight of its query heads, the columns. The steps of
the keys scale the queries, and their minima add one number a column. The steps and minima of the
values scale the weights. Programs write partial outputs, which a second kernel merges by their
largest logits and the logarithms of their sums of exponentials. More programs attend to the
residual buffer.
"""

# pyright: reportArgumentType=false

from math import e, log2, sqrt

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from optimized import vector
from optimized._dispatch import gradient_fallback
from optimized.hex_packed_layout import TILE, PackedCache
from optimized.kernels._numerics import rounded, widened
from optimized.kernels.hex._sparse_entries import (
    ROOM,
    add_keys,
    add_values,
    tables,
    write_entry_starts,
)
from optimized.vector.hex.cache_layout import cached_on_tensor, mask_settings
from reference.hex.attention import HexAttention
from reference.hex.cache import HexCache
from reference.hex.compress import HexBlock

COLUMNS = 8
PROGRAMS = 2112  # of one warp: sixteen for each multiprocessor of an H100
WIDTHS = (64, 128)
CODES = (2, 3, 4, 8)
PTX = torch.version.hip is None and not triton.knobs.runtime.interpret
REGISTERS = dict(maxnreg=255) if PTX else {}
"""The most registers a lane may have: by default the assembler allocates fewer, and spills."""
MERGED = 8 if triton.knobs.runtime.interpret else 64
"""Partial outputs times columns that a program merges at a time, so that loads overlap."""
UNIT = tl.constexpr(32768.0)
"""The scale of numbers of at most 1 in half precision, so that small ones keep their bits."""
ASKED = tl.constexpr(14 << 23)
"""An exponent of 14 in the bits of a float: a query's largest product is scaled to about 2^14."""
LOWEST = tl.constexpr(-3.0e38)
"""The running maximum before the first logit: finite, so that differences to it are numbers."""


@triton.jit
def halves(words, MASK: tl.constexpr, ONE: tl.constexpr, PTX: tl.constexpr):
    """Return the masked codes of the low and the high half of words, joined along the last axis.

    In half precision, the bits of 1024 with a code times ONE as low bits are the number 1024 plus
    the code times ONE.
    """
    if PTX:
        # one instruction; the compiler would emit two, to save a register for a constant
        words = tl.inline_asm_elementwise(
            "lop3.b32 $0, $1, $2, 0x64006400, 0xea;", "=r,r,r", [words, MASK],
            dtype=tl.int32, is_pure=True, pack=1,
        )  # fmt: skip
        low, high = tl.inline_asm_elementwise(
            "mov.b32 {$0, $1}, $2;", "=h,=h,r", [words],
            dtype=(tl.float16, tl.float16), is_pure=True, pack=1,
        )  # fmt: skip
    else:
        words = (words & MASK) | 0x64006400
        low = (words & 0xFFFF).to(tl.uint16).to(tl.float16, bitcast=True)
        high = ((words >> 16) & 0xFFFF).to(tl.uint16).to(tl.float16, bitcast=True)
    both = tl.join(low, high)
    return tl.reshape(both, (both.shape[0], 2 * both.shape[1])) * (1.0 / ONE) - 1024.0 / ONE


@triton.jit
def masked(words, i, BITS: tl.constexpr, PTX: tl.constexpr):
    """Return the i-th codes of each half.

    A number of half precision has ten bits of mantissa. Codes in higher bits are shifted into them,
    as many at once as fit.
    """
    FIT: tl.constexpr = 10 // BITS
    ONE: tl.constexpr = 2 ** (BITS * (i % FIT))
    ONES: tl.constexpr = (2**BITS - 1) * 0x00010001
    return halves(words >> (BITS * (i // FIT * FIT)), ONES * ONE, ONE, PTX)


@triton.jit
def keys_of(words, i: tl.constexpr, BITS: tl.constexpr, PAIRED: tl.constexpr, PTX: tl.constexpr):
    """Return the i-th codes of keys, `[tokens, channels]`; PAIRED, of two groups interleaved."""
    if PAIRED:
        even = masked(words, 2 * i, BITS, PTX)
        both = tl.join(even, masked(words, 2 * i + 1, BITS, PTX))
        return tl.reshape(both, (both.shape[0], 2 * both.shape[1]))
    else:
        return masked(words, i, BITS, PTX)


@triton.jit
def values_of(words, i: tl.constexpr, BITS: tl.constexpr, PAIRED: tl.constexpr, PTX: tl.constexpr):
    """Return the i-th codes of values, `[channels, tokens]`; PAIRED, of two groups interleaved."""
    if PAIRED:
        even = masked(words, 2 * i, BITS, PTX)
        both = tl.join(even, masked(words, 2 * i + 1, BITS, PTX))
        both = tl.permute(both, (0, 2, 1))
        return tl.reshape(both, (2 * both.shape[0], both.shape[2]))
    else:
        return masked(words, i, BITS, PTX)


@triton.jit
def three_bit_codes(planes, u: tl.constexpr, PTX: tl.constexpr):
    """Return the codes of group u of three bits; the last one lies in spare bits of the planes."""
    if u < 15:
        return masked(planes[u // 5], u % 5, 3, PTX)
    else:
        words = (planes[0] >> 15 & 0x00010001) | (planes[1] >> 14 & 0x00020002)
        return halves(words | (planes[2] >> 13 & 0x00040004), 0x00070007, 1, PTX)


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
def multiplied(codes, factors, sums):
    """Return `sums` plus the product of codes with the sum of `factors`, of half precision."""
    for i in tl.static_range(len(factors)):
        sums = tl.dot(codes, factors[i], sums)
    return sums


@triton.jit
def full_tiles(value, COUNT: tl.constexpr, ROWS: tl.constexpr, C: tl.constexpr):
    """Return COUNT tiles filled with one number."""
    tiles = ()
    for _ in tl.static_range(COUNT):
        tiles += (tl.full([ROWS, C], value, tl.float32),)
    return tiles


@triton.jit
def token_of(part, BITS: tl.constexpr, WIDTH: tl.constexpr):
    """Return the tokens of a part of a tile, and the mask of those that exist."""
    if BITS == 3:
        SEVERAL: tl.constexpr = 256 // WIDTH
        ROWS: tl.constexpr = 3 * WIDTH // 8
        row = part // SEVERAL * 16 + tl.arange(0, 16)
        return part % SEVERAL * ROWS + row, row < ROWS
    else:
        token = part * 32 + tl.arange(0, 32)
        return token, token < 96


@triton.jit
def weighed(rows, factors, sums, PTX: tl.constexpr):
    """Return `sums` plus the product of rows with factors of float32, by tensor cores if any."""
    if rows.dtype == tl.float16:
        return multiplied(rows, split_float(factors), sums)
    elif PTX:
        # a sum of three bfloat16 is one float32; the interpreter cannot multiply bfloat16
        for i in tl.static_range(1 if rows.dtype == tl.bfloat16 else 3):
            row, rest = rows.to(tl.bfloat16), factors
            for _ in tl.static_range(3 - i):
                near = rest.to(tl.bfloat16)
                sums = tl.dot(row, near, sums)
                rest -= near.to(tl.float32)
            if rows.dtype == tl.float32:
                rows -= row.to(tl.float32)
        return sums
    else:
        return tl.dot(widened(rows), factors, sums, input_precision="ieee")


@triton.jit
def attend_residual(
    query, scale, keys, values, logits, out, norm, first, tokens, stride,
    WIDTH: tl.constexpr, C: tl.constexpr, HELD: tl.constexpr, LOGITS: tl.constexpr,
    PTX: tl.constexpr,
):  # fmt: skip
    """Write the attention to 16 tokens from `first` in every `stride` of the residual buffer."""
    SLICES: tl.constexpr = WIDTH // 32  # of channels, so that registers suffice
    HALF: tl.constexpr = keys.dtype.element_ty == tl.float16
    ASKED: tl.constexpr = UNIT if HALF else 1.0
    g, t, c = tl.arange(0, C), tl.arange(0, 16), tl.arange(0, 32)
    real = (g < HELD)[None, :]
    scale *= 1.0 / ASKED
    largest = tl.full([C], LOWEST, tl.float32)
    total = tl.zeros([C], tl.float32)
    o = full_tiles(0.0, SLICES, 32, C)
    for start in tl.range(first, tokens, stride, num_stages=1):
        there = start + t < tokens
        at = (start + t) * WIDTH
        s = tl.zeros([16, C], tl.float32)
        for i in tl.static_range(SLICES):
            channel = i * 32 + c
            k = keys + at[:, None] + channel[None, :]
            q = query + channel[:, None] * HELD + g[None, :]
            k = tl.load(k, mask=there[:, None], other=0.0)
            s = weighed(k, tl.load(q, mask=real, other=0.0) * ASKED, s, PTX)
        s = tl.where(there[:, None], s * scale[None, :], -float("inf"))
        if LOGITS:
            here = logits + (start + t)[:, None] * HELD + g[None, :]
            tl.store(here, s, mask=there[:, None] & real)
        higher = tl.maximum(largest, tl.max(s, 0))
        fade = tl.exp2(largest - higher)
        largest = higher
        p = tl.exp2(s - largest[None, :])
        total = total * fade + tl.sum(p, 0)
        p *= ASKED
        mixed = ()
        for i in tl.static_range(SLICES):
            v = values + at[None, :] + (i * 32 + c)[:, None]
            v = tl.load(v, mask=there[None, :], other=0.0)
            mixed += (weighed(v, p, o[i] * fade[None, :], PTX),)
        o = mixed
    share_of = (1.0 / (total * ASKED))[None, :]
    for i in tl.static_range(SLICES):
        at = out + (i * 32 + c)[:, None] * HELD + g[None, :]
        tl.store(at, o[i] * share_of, mask=real)
    tl.store(norm + g, largest, mask=g < HELD)
    tl.store(norm + HELD + g, tl.log2(total), mask=g < HELD)


@triton.jit
def codes_kernel(
    query, scales, residual_keys, residual_values, residual_logits, key_words, key_steps,
    key_minima, value_words, value_steps, value_minima, reach, kept_keys, kept_values,
    firsts, dynamic, counts_of, tokens_of, channels_of, columns_of, places_of, scratch, logits,
    found, norms, count, share, tiles, rows, heads, parts, value_heads, length, splits, first,
    residual, programs,
    BITS: tl.constexpr, WIDTH: tl.constexpr, C: tl.constexpr, HELD: tl.constexpr,
    PARTIAL: tl.constexpr, ENTRIES: tl.constexpr, PLAIN: tl.constexpr, LOGITS: tl.constexpr,
    MASS: tl.constexpr, PTX: tl.constexpr,
):  # fmt: skip
    """Write the attention to some tiles of codes; the last programs take the residual buffer."""
    THREE: tl.constexpr = BITS == 3
    FIELD: tl.constexpr = 16 if THREE else WIDTH * BITS // 16  # channels of a group
    PAIRED: tl.constexpr = FIELD < 16
    GROUP: tl.constexpr = 16 if PAIRED else FIELD  # channels of a product
    GROUPS: tl.constexpr = WIDTH // GROUP
    EVERY: tl.constexpr = 256 // WIDTH if THREE else 1  # parts that share words
    STEPS: tl.constexpr = (3 * WIDTH // 8 + 15) // 16 if THREE else 3
    PARTS: tl.constexpr = STEPS * EVERY
    ROWS: tl.constexpr = 16 if THREE else 32  # tokens of a part
    HOLES: tl.constexpr = THREE and WIDTH < 128  # parts have rows beyond their tile
    pid = tl.program_id(0).to(tl.int64)
    head = pid // parts  # counted through all rows
    value_row = head // heads * value_heads + head % heads % value_heads
    g, c, t = tl.arange(0, C), tl.arange(0, GROUP), tl.arange(0, ROWS)
    h = tl.arange(0, HELD)
    place = c // 2 + FIELD * (c % 2) if PAIRED else c  # of a channel in its group or groups
    j, r = tl.arange(0, FIELD // 2), tl.arange(0, ROWS // 2)
    all_of_group = tl.arange(0, FIELD)
    real = g < HELD  # other columns are zeros
    query += pid * WIDTH * HELD
    scale = tl.load(scales + pid * HELD + g, mask=real, other=0.0)
    split = tl.program_id(0) * splits + first + tl.program_id(1)
    out = found + split.to(tl.int64) * WIDTH * HELD
    norm = norms + split.to(tl.int64) * (2 * HELD)
    if PLAIN:
        extra = tl.program_id(1) - programs
        if extra >= 0:
            behind = head * residual * WIDTH
            attend_residual(
                query, scale, residual_keys + behind, residual_values + behind,
                residual_logits + pid * residual * HELD, out, norm, 16 * extra, residual,
                16 * (tl.num_programs(1) - programs), WIDTH, C, HELD, MASS, PTX,
            )  # fmt: skip
            return
    far = tl.load(reach + value_row)
    # so that the inverse is finite
    far = tl.maximum(tl.where(far > 0, far, 1.0), 2.0**-105)
    inverse = UNIT / far
    if ENTRIES:
        scratch += (pid * programs + tl.program_id(1)) * (128 + (97 + 96) * HELD)
        begins = scratch.to(tl.pointer_type(tl.int32), bitcast=True)
        bias = scratch + 128
        powers = bias + 97 * HELD
        # the contribution of kept values accumulates in the memory of the partial output
        every = tl.arange(0, WIDTH * HELD)
        tl.store(out + every, tl.zeros([WIDTH * HELD], tl.float32))
    largest = tl.full([C], LOWEST, tl.float32)
    total = tl.zeros([C], tl.float32)
    minima = tl.zeros([C], tl.float32)
    o = full_tiles(0.0, GROUPS, GROUP, C)
    start = tl.program_id(1) * share
    for tile in range(start, tl.minimum(start + share, count)):
        span, within = tile // tiles, tile % tiles
        group = span.to(tl.int64) * rows * heads + head
        words = (group * tiles + within) * (3 * WIDTH * BITS)
        steps = key_steps + group * WIDTH
        left = length - within * 96
        if ENTRIES:
            table = within * heads + head % heads
            flags = dynamic + (span.to(tl.int64) * rows + head // heads) * length + within * 96
            write_entry_starts(begins, flags, counts_of + table * 128, left, WIDTH)
            tl.debug_barrier()
            entry = tl.load(firsts + group * tiles + within)
            add_keys(
                bias, query, kept_keys + entry, key_minima + group * WIDTH, begins,
                tokens_of + table * (96 * 2), channels_of, WIDTH, HELD,
            )  # fmt: skip
            tl.debug_barrier()
        # each column is scaled by its largest product of query and step
        below, most = tl.zeros([GROUP, HELD], tl.float32), tl.zeros([GROUP, HELD], tl.float32)
        asked = ()
        for i in tl.static_range(GROUPS):
            at = i * GROUP + place
            q = tl.load(query + at[:, None] * HELD + h[None, :])
            step = widened(tl.load(steps + at))
            below += q * widened(tl.load(key_minima + group * WIDTH + at))[:, None]
            q *= step[:, None]
            most = tl.maximum(most, tl.abs(q))
            asked += (q,)
        most = tl.max(most, 0)
        # so that the inverse is finite
        most = tl.maximum(tl.where(most > 0, most, 1.0), 2.0**-105)
        # scaling by a power of two is exact; this is its exponent field in a float
        top = most.to(tl.int32, bitcast=True) & 0x7F800000
        fit = (0x7F000000 - top + ASKED).to(tl.float32, bitcast=True)
        sums = ()
        for i in tl.static_range(GROUPS):
            both = split_float(asked[i] * fit[None, :])
            for n in tl.static_range(len(both)):
                sums += (spread(both[n], C),)
        asked = sums
        below, top = spread(tl.sum(below, 0), C), spread(top, C)
        s = ()
        for part in tl.static_range(PARTS):
            if part % EVERY == 0:
                row = part // EVERY * ROWS + t
                at = key_words + words + row[:, None] * (FIELD // 2) + j[None, :]
                if HOLES:
                    mine = (row < 3 * WIDTH // 8)[:, None]
                    keys = (
                        tl.load(at, mask=mine, other=0),
                        tl.load(at + 3 * WIDTH, mask=mine, other=0),
                        tl.load(at + 6 * WIDTH, mask=mine, other=0),
                    )
                elif THREE:
                    keys = tl.load(at), tl.load(at + 3 * WIDTH), tl.load(at + 6 * WIDTH)
                else:
                    keys = (tl.load(at),)
            if ENTRIES:
                # the accumulator starts from the bias, so that it has the layout of products
                token, mine = token_of(part, BITS, WIDTH)
                at = bias + token[:, None] * HELD + g[None, :]
                mine = mine[:, None] & real[None, :] if HOLES else real[None, :]
                x = tl.load(at, mask=mine, other=0.0)
                x *= (0x7F000000 - top + ASKED).to(tl.float32, bitcast=True)[None, :]
            else:
                x = tl.zeros([ROWS, C], tl.float32)
            for i in tl.static_range(GROUPS):
                if THREE:
                    codes = three_bit_codes(keys, part % EVERY * GROUPS + i, PTX)
                else:
                    codes = keys_of(keys[0], i, BITS, PAIRED, PTX)
                x = multiplied(codes, asked[2 * i : 2 * i + 2], x)
            s += (x,)
        if LOGITS:
            here = logits + (pid * count + tile) * (96 * HELD)
        sums = ()
        if LOGITS:  # loaded again to save registers
            scale = tl.load(scales + pid * HELD + g, mask=real, other=0.0)
        below = below * scale
        worth = (top - ASKED).to(tl.float32, bitcast=True) * scale
        for part in tl.static_range(PARTS):
            token, mine = token_of(part, BITS, WIDTH)
            x = s[part] * worth[None, :] + below[None, :]
            if PARTIAL or HOLES:
                x = tl.where((mine & (token < left))[:, None], x, -float("inf"))
            if LOGITS:
                at = here + token[:, None] * HELD + g[None, :]
                tl.store(at, x, mask=mine[:, None] & real[None, :])
            sums += (x,)
        s = sums
        most = s[0]
        for part in tl.static_range(1, PARTS):
            most = tl.maximum(most, s[part])
        higher = tl.maximum(largest, tl.max(most, 0))
        fade = tl.exp2(largest - higher)
        largest = higher
        if ENTRIES:
            tl.store(bias + 96 * HELD + g, fade, mask=real)
        sums = ()
        drawn = tl.zeros([ROWS, C], tl.float32)
        for part in tl.static_range(PARTS):
            p = tl.exp2(s[part] - largest[None, :])
            drawn += p
            sums += (p,)
            if ENTRIES:
                token, mine = token_of(part, BITS, WIDTH)
                at = powers + token[:, None] * HELD + g[None, :]
                mine = mine[:, None] & real[None, :] if HOLES else real[None, :]
                tl.store(at, p, mask=mine)
        s = sums
        if ENTRIES:
            tl.debug_barrier()
        total = total * fade + tl.sum(drawn, 0)
        minima *= fade
        faded = ()
        for i in tl.static_range(GROUPS):
            faded += (o[i] * fade[None, :],)
        o = faded
        tokens = (span.to(tl.int64) * rows * value_heads + value_row) * length + within * 96
        for i in tl.static_range(STEPS):
            row = i * (ROWS // 2) + r
            at = value_words + words + row[None, :] * FIELD + all_of_group[:, None]
            if HOLES:
                mine = (row < 3 * WIDTH // 16)[None, :]
                v = (
                    tl.load(at, mask=mine, other=0),
                    tl.load(at + 3 * WIDTH, mask=mine, other=0),
                    tl.load(at + 6 * WIDTH, mask=mine, other=0),
                )
            elif THREE:
                v = tl.load(at), tl.load(at + 3 * WIDTH), tl.load(at + 6 * WIDTH)
            else:
                v = (tl.load(at),)
            for k in tl.static_range(EVERY):
                token, mine = token_of(i * EVERY + k, BITS, WIDTH)
                if PARTIAL or HOLES:
                    mine &= token < left
                    step = tl.load(value_steps + tokens + token, mask=mine, other=0.0)
                    low = tl.load(value_minima + tokens + token, mask=mine, other=0.0)
                else:
                    step = tl.load(value_steps + tokens + token)
                    low = tl.load(value_minima + tokens + token)
                step = widened(step)
                p = s[i * EVERY + k]
                minima += tl.sum(p * widened(low)[:, None], 0)
                p = p * (step * inverse)[:, None]
                mixed = ()
                for n in tl.static_range(GROUPS):
                    if THREE:
                        codes = three_bit_codes(v, k * GROUPS + n, PTX)
                    else:
                        codes = values_of(v[0], n, BITS, PAIRED, PTX)
                    mixed += (multiplied(codes, split_float(p), o[n]),)
                o = mixed
        if ENTRIES:
            add_values(
                out, powers, bias + 96 * HELD, kept_values + entry, value_minima + tokens,
                begins, columns_of + table * (WIDTH * 2), places_of, WIDTH, HELD,
            )  # fmt: skip
            tl.debug_barrier()
    share_of = (1.0 / total)[None, :]
    rest = minima[None, :]
    for i in tl.static_range(GROUPS):
        x = o[i] * (far * (1.0 / UNIT)) + rest
        at = out + (i * GROUP + place)[:, None] * HELD + g[None, :]
        if ENTRIES:
            x += tl.load(at, mask=real[None, :], other=0.0)
        tl.store(at, x * share_of, mask=real[None, :])
    tl.store(norm + g, largest, mask=real)
    tl.store(norm + HELD + g, tl.log2(total), mask=real)


@triton.jit
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
    tl.store(place, rounded(o / total, output.dtype.element_ty))
    tl.store(whole + pid * 2 * C + g, largest, mask=channel == 0)
    tl.store(whole + (pid * 2 + 1) * C + g, tl.log2(total), mask=channel == 0)


@triton.jit
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
    """Whether the kernels support the call: a decoding step without padding."""
    exact = torch.promote_types(queries.dtype, cache.residual_keys.dtype)
    return (
        exact != torch.float64
        and queries.shape[-2] == 1
        and queries.shape[-1] in WIDTHS
        and queries.shape[-3] > 0
        and valid is None
        and cache.config.density < 1
        and bool(cache.blocks)
        and all(plain(block) for block in cache.blocks)
    )


def plain(block: HexBlock) -> bool:
    """Whether the kernels support the bit width of a block, and it has tokens."""
    return block.bits in CODES and block.dynamic.numel() > 0


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
            "out by PackedCache.of(cache) and capture optimized.kernels.hex.attention.attended"
        )
    if not taken(queries, cache, valid):
        return vector.hex_attention(queries, cache, valid, causal, scale, mass)
    return attended(queries, PackedCache.of(cache), scale, mass)


def attended(
    queries: Tensor,
    cache: PackedCache,
    scale: float | None = None,
    mass: bool = False,
    of_all: bool = True,
) -> HexAttention:
    """Return the attention of one query a head to a cache in the kernels' layout.

    The mass covers all tokens, or only the residual buffer unless `of_all`.
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
    plain_part = (
        rest.residual_keys.contiguous(), rest.residual_values.contiguous(),
        query.new_empty(grid, residual, held) if mass else query,
    )  # fmt: skip
    logits, first = [], 0
    for run, count, share, several in zip(cache.runs, counts, shares, programs, strict=True):
        kept = run.kept_keys.numel() > 0
        room = grid, count * TILE, held
        here = query.new_empty(room) if mass and of_all else query
        logits += [here] * of_all
        value_heads = heads if run.value_steps.ndim == 4 else 1
        reach = run.value_steps.float().amax((0, -1)).contiguous()
        where = (run.tiles, rows, heads, parts)
        entries = [query] * 10
        if kept:
            asked = mask_settings(rest.config), run.length, heads, width, run.dynamic.device
            table = cached_on_tensor(run.dynamic, tables, *asked)
            room = ROOM + (2 * TILE + 1) * held
            entries = [
                run.kept_keys, run.kept_values, run.begins, run.dynamic, *table,
                query.new_empty(grid, several, room),
            ]  # fmt: skip
        codes_kernel[(grid, several + extra)](
            query, scales, *plain_part, run.key_words, run.key_steps, run.key_minima,
            run.value_words, run.value_steps, run.value_minima, reach, *entries,
            here, found, norms,
            count, share, *where, value_heads, run.length, splits, first, residual, several,
            BITS=run.bits, WIDTH=width, C=COLUMNS, HELD=held,
            PARTIAL=run.length % TILE > 0, ENTRIES=kept, PLAIN=extra > 0, LOGITS=mass and of_all,
            MASS=mass, PTX=PTX,
            # registers of one warp do not suffice for eight bits, nor for a pipelined loop that
            # stores logits
            num_warps=2 if run.bits == 8 else 1, num_stages=1 if mass else 2,
            **REGISTERS,
        )  # fmt: skip
        first += several + extra
        extra = 0
    if residual:
        logits.append(plain_part[2])
    output = queries.new_empty(grid, held, width)
    whole = query.new_empty(grid, 2, held)
    merge_kernel[(grid, width // 32)](
        found, norms, output, whole, splits,
        WIDTH=width, C=held, MANY=max(1, MERGED // held), num_warps=1,
    )  # fmt: skip
    output = output.view(rows * heads, parts * held, width)[:, :group].reshape(queries.shape)
    if not mass:
        return HexAttention(output, None)
    runs = cache.runs if of_all else ()
    lengths = [len(run.entries) * run.length for run in runs]
    drawn = query.new_empty(rows, sum(lengths) + residual)
    spans = [(run.length, run.tiles * TILE) for run in runs] + [(residual, residual)]
    lengths += [residual] * (residual > 0)
    first = 0
    for tokens, (length, padded), one in zip(lengths, spans, logits, strict=False):
        mass_kernel[(rows * triton.cdiv(tokens, 128),)](
            one, whole, drawn, tokens, one.shape[1], length, padded, parts, heads, group,
            drawn.shape[1], first, C=held, BLOCK=128,
        )  # fmt: skip
        first += tokens
    return HexAttention(output, drawn.view(*rest.residual_mass.shape[:-1], -1))
