"""A span of a HEX cache, quantised and packed, or unpacked and restored, without what lies between.

A program owns a strip: 32 tokens of a head, a third of a tile. Its codes are words of their own,
in the stream that the specification stores, and in the layout of the kernels too.
"""

# pyright: reportArgumentType=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from optimized import vector
from optimized.kernels._device import rounded, widened
from optimized.kernels._tiles import DTYPES, WIDEST
from optimized.layout import TILE, Run, first_entries
from optimized.vector.hex.compress import hex_mask
from reference.contract import scanning
from reference.hex.compress import HexBlock
from reference.hex.kcvt import scale_dtype

BLOCK = 1024
"""Tokens whose keys a program looks at for their range."""
LONGEST = 32 * 65535
"""Tokens of as many strips as the second axis of a grid has programs."""
EVEN = tl.constexpr(12582912.0)
"""Beside it a number up to 2**22 loses its fraction, half to even, and fills the low bits."""
FUSED = not triton.knobs.runtime.interpret


@triton.jit
def tokens_of(strip, BITS: tl.constexpr, WIDTH: tl.constexpr, TILED: tl.constexpr):
    """Return the tokens of a strip in the order in which its words take them."""
    m = tl.arange(0, 32)
    if TILED and BITS == 3:
        # the groups of one half lie in tokens that are three eighths of the width apart
        SEVERAL: tl.constexpr = 256 // WIDTH
        row = strip % 3 * (WIDTH // 8) + m // SEVERAL
        return strip // 3 * 96 + row + m % SEVERAL * (3 * WIDTH // 8)
    else:
        return strip * 32 + m


@triton.jit
def free(static, whole, h, token, channel, there, heads, WIDTH: tl.constexpr):
    """Return which entries of some tokens of a head are not kept."""
    marked = tl.load(
        static + (token.to(tl.int64)[:, None] * heads + h) * WIDTH + channel[None, :],
        mask=there,
        other=1,
    )
    return there & (marked == 0) & (whole == 0)[:, None]


@triton.jit
def scales(low, high, BITS: tl.constexpr):
    """Return step and minimum of groups; those without members have 0."""
    empty = low > high
    low, high = tl.where(empty, 0.0, low), tl.where(empty, 0.0, high)
    return tl.math.div_rn(high - low, 2**BITS - 1.0), low


@triton.jit
def added(x, y, z, FUSED: tl.constexpr):
    """Return x y + z, rounded once; the interpreter, which would round twice, has float64."""
    if FUSED:
        return tl.fma(x, y, z)
    else:
        return (x.to(tl.float64) * y.to(tl.float64) + z.to(tl.float64)).to(tl.float32)


@triton.jit
def ready(low, step):
    """Return what `coded` takes of groups: minima, steps below 0, their inverses, a power of two.

    By that power, an exact factor, a step comes near 1, so that nothing overflows or is lost; it is
    0 where the step is.
    """
    field = step.to(tl.int32, bitcast=True) >> 23
    power = (tl.maximum(254 - field, 1) << 23).to(tl.float32, bitcast=True)
    power = tl.where(step == 0.0, 0.0, power)
    near = tl.where(step == 0.0, 1.0, step * power)
    return low, -near, tl.math.div_rn(1.0, near), power


@triton.jit
def coded(x, low, less, inverse, power, free, BITS: tl.constexpr, FUSED: tl.constexpr):
    """Return the codes of numbers, given what is ready of their groups.

    The quotient is the one nearest to x - low over the step, as a division would round it: what
    a product with the inverse leaves over is known exactly, and put right twice (Markstein).
    """
    beyond = (x - low) * power
    place = beyond * inverse
    place = added(added(place, less, beyond, FUSED), inverse, place, FUSED)
    place = added(added(place, less, beyond, FUSED), inverse, place, FUSED)
    # what a coarse step throws beyond the range would be too large to round
    place = tl.minimum(tl.maximum(place, 0.0), 2**BITS - 1.0) + EVEN
    return tl.where(free, place.to(tl.uint32, bitcast=True) & (2**BITS - 1), 0)


@triton.jit
def written(
    words, codes, strip, count, channel, BITS: tl.constexpr, WIDTH: tl.constexpr,
    TILED: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Write the codes of a strip as words, of which a channel, or a head's tiles, has `count`."""
    if not TILED:
        m = tl.arange(0, 32)
        for k in tl.static_range(BITS):
            left = BITS * m - 32 * k
            up, down = tl.minimum(tl.maximum(left, 0), 31), tl.minimum(tl.maximum(-left, 0), 31)
            here = (codes << up[:, None]) >> down[:, None]
            word = tl.sum(tl.where(((left > -BITS) & (left < 32))[:, None], here, 0), 0)
            at = strip * BITS + k
            tl.store(
                words + channel * count + at,
                word.to(tl.int32, bitcast=True),
                mask=(channel < WIDTH) & (at < count),
            )
    elif BITS == 3:
        ROWS: tl.constexpr = WIDTH // 8
        here = words + strip // 3 * (9 * WIDTH)
        row, u = strip % 3 * ROWS, tl.arange(0, 16)
        if KEYS:
            parts = tl.reshape(codes, (ROWS, 16, 8, 2))
            at = (row + tl.arange(0, ROWS))[:, None] * 8 + tl.arange(0, 8)[None, :]
        else:
            parts = tl.permute(tl.reshape(codes, (ROWS // 2, 2, 16, 16)), (0, 2, 3, 1))
            at = (row // 2 + tl.arange(0, ROWS // 2))[:, None] * 16 + tl.arange(0, 16)[None, :]
        parts = tl.sum(parts << (16 * tl.arange(0, 2))[None, None, None, :], 3)
        for p in tl.static_range(3):
            mine = (u >= 5 * p) & (u < 5 * p + 5)
            field = tl.where(mine, 3 * (u - 5 * p), 0)[None, :, None]
            spare = (parts >> p & 0x00010001) << 15
            here_of = tl.where(mine[None, :, None], parts << field, 0)
            word = tl.sum(tl.where((u == 15)[None, :, None], spare, here_of), 1)
            tl.store(here + p * (3 * WIDTH) + at, word.to(tl.int32, bitcast=True))
    else:
        FIELDS: tl.constexpr = 16 // BITS
        GROUP: tl.constexpr = WIDTH * BITS // 16
        i = (BITS * tl.arange(0, FIELDS))[None, :, None]
        if KEYS:
            parts = tl.reshape(codes, (32, FIELDS, GROUP // 2, 2))
            at = tl.arange(0, 32)[:, None] * (GROUP // 2) + tl.arange(0, GROUP // 2)[None, :]
        else:
            parts = tl.permute(tl.reshape(codes, (16, 2, FIELDS, GROUP)), (0, 2, 3, 1))
            at = tl.arange(0, 16)[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
        parts = tl.sum(parts << (16 * tl.arange(0, 2))[None, None, None, :], 3)
        word = tl.sum(parts << i, 1)
        tl.store(words + strip * (16 * GROUP) + at, word.to(tl.int32, bitcast=True))


@triton.jit
def read(
    words, strip, count, channel, BITS: tl.constexpr, WIDTH: tl.constexpr, ROOM: tl.constexpr,
    TILED: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Read the codes of a strip back."""
    if not TILED:
        first = BITS * tl.arange(0, 32)
        at, place = strip * BITS + first // 32, (first % 32)[:, None]
        mine = (channel < WIDTH)[None, :]
        here = words + channel[None, :] * count
        low = tl.load(here + at[:, None], mask=mine & (at < count)[:, None], other=0)
        codes = low.to(tl.uint32, bitcast=True) >> place
        if 32 % BITS != 0:
            on = at + (first + BITS - 1) // 32 - first // 32  # where the code goes on, if it does
            high = tl.load(here + on[:, None], mask=mine & (on < count)[:, None], other=0)
            rest = high.to(tl.uint32, bitcast=True) << ((32 - place) % 32)
            codes |= tl.where((on > at)[:, None], rest, 0)
        return codes & (2**BITS - 1)
    elif BITS == 3:
        ROWS: tl.constexpr = WIDTH // 8
        here = words + strip // 3 * (9 * WIDTH)
        row, u = strip % 3 * ROWS, tl.arange(0, 16)
        if KEYS:
            at = (row + tl.arange(0, ROWS))[:, None] * 8 + tl.arange(0, 8)[None, :]
        else:
            at = (row // 2 + tl.arange(0, ROWS // 2))[:, None] * 16 + tl.arange(0, 16)[None, :]
        w0 = tl.load(here + at).to(tl.uint32, bitcast=True)[:, None, :]
        w1 = tl.load(here + 3 * WIDTH + at).to(tl.uint32, bitcast=True)[:, None, :]
        w2 = tl.load(here + 6 * WIDTH + at).to(tl.uint32, bitcast=True)[:, None, :]
        plane = u[None, :, None] // 5
        word = tl.where(plane == 0, w0, tl.where(plane == 1, w1, w2))
        spare = (w0 >> 15 & 0x00010001) | (w1 >> 14 & 0x00020002) | (w2 >> 13 & 0x00040004)
        word = tl.where(u[None, :, None] == 15, spare, word >> (3 * (u % 5))[None, :, None])
        codes = word[:, :, :, None] >> (16 * tl.arange(0, 2))[None, None, None, :] & 7
        if not KEYS:
            codes = tl.permute(codes, (0, 3, 1, 2))
        return tl.reshape(codes, (32, ROOM))
    else:
        FIELDS: tl.constexpr = 16 // BITS
        GROUP: tl.constexpr = WIDTH * BITS // 16
        if KEYS:
            at = tl.arange(0, 32)[:, None] * (GROUP // 2) + tl.arange(0, GROUP // 2)[None, :]
        else:
            at = tl.arange(0, 16)[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
        word = tl.load(words + strip * (16 * GROUP) + at).to(tl.uint32, bitcast=True)
        word = word[:, None, :] >> (BITS * tl.arange(0, FIELDS))[None, :, None]
        codes = word[:, :, :, None] >> (16 * tl.arange(0, 2))[None, None, None, :]
        if not KEYS:
            codes = tl.permute(codes, (0, 3, 1, 2))
        return tl.reshape(codes & (2**BITS - 1), (32, ROOM))


@triton.jit
def range_kernel(
    keys, static, dynamic, lows, highs, tokens, heads, parts, WIDTH: tl.constexpr,
    ROOM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Find the range of each channel among some tokens."""
    pid = tl.program_id(0).to(tl.int64)  # a head of a row
    part = tl.program_id(1)
    m, channel = tl.arange(0, 32), tl.arange(0, ROOM)
    low = tl.full([32, ROOM], float("inf"), tl.float32)
    high = -low
    flags = dynamic + pid // heads * tokens
    stop = tl.minimum((part + 1) * BLOCK, tokens)
    for start in range(part * BLOCK, stop, 32):
        token = start + m
        inside = token < stop
        there = inside[:, None] & (channel < WIDTH)[None, :]
        whole = tl.load(flags + token, mask=inside, other=1)
        left = free(static, whole, pid % heads, token, channel, there, heads, WIDTH)
        at = (pid * tokens + token)[:, None] * WIDTH + channel[None, :]
        x = widened(tl.load(keys + at, mask=there, other=0.0))
        low = tl.minimum(low, tl.where(left, x, float("inf")))
        high = tl.maximum(high, tl.where(left, x, -float("inf")))
    at = (pid * parts + part) * WIDTH + channel
    tl.store(lows + at, tl.min(low, 0), mask=channel < WIDTH)
    tl.store(highs + at, tl.max(high, 0), mask=channel < WIDTH)


@triton.jit
def scales_kernel(
    lows, highs, steps, minima, parts,
    BITS: tl.constexpr, WIDTH: tl.constexpr, ROOM: tl.constexpr,
):  # fmt: skip
    """Join the ranges of a head's channels, and store their steps and minima."""
    pid = tl.program_id(0).to(tl.int64)
    part, channel = tl.arange(0, 16), tl.arange(0, ROOM)
    low = tl.full([16, ROOM], float("inf"), tl.float32)
    high = -low
    for start in range(0, parts, 16):
        there = (start + part < parts)[:, None] & (channel < WIDTH)[None, :]
        at = (pid * parts + start + part)[:, None] * WIDTH + channel[None, :]
        low = tl.minimum(low, tl.load(lows + at, mask=there, other=float("inf")))
        high = tl.maximum(high, tl.load(highs + at, mask=there, other=-float("inf")))
    step, low = scales(tl.min(low, 0), tl.max(high, 0), BITS)
    at = pid * WIDTH + channel
    tl.store(steps + at, rounded(step, steps.dtype.element_ty), mask=channel < WIDTH)
    tl.store(minima + at, rounded(low, minima.dtype.element_ty), mask=channel < WIDTH)


@triton.jit
def keys_kernel(
    keys, static, dynamic, steps, minima, words, tokens, heads, count,
    BITS: tl.constexpr, WIDTH: tl.constexpr, ROOM: tl.constexpr, TILED: tl.constexpr,
    FUSED: tl.constexpr,
):  # fmt: skip
    """Write the codes of the keys of a strip."""
    pid, strip = tl.program_id(0).to(tl.int64), tl.program_id(1)
    channel = tl.arange(0, ROOM)
    token = tokens_of(strip, BITS, WIDTH, TILED)
    inside, real = token < tokens, channel < WIDTH
    there = inside[:, None] & real[None, :]
    whole = tl.load(dynamic + pid // heads * tokens + token, mask=inside, other=1)
    left = free(static, whole, pid % heads, token, channel, there, heads, WIDTH)
    at = (pid * tokens + token)[:, None] * WIDTH + channel[None, :]
    x = widened(tl.load(keys + at, mask=there, other=0.0))
    step = widened(tl.load(steps + pid * WIDTH + channel, mask=real, other=0.0))
    low = widened(tl.load(minima + pid * WIDTH + channel, mask=real, other=0.0))
    low, less, inverse, power = ready(low, step)
    codes = coded(
        x, low[None, :], less[None, :], inverse[None, :], power[None, :], left, BITS, FUSED
    )
    words += pid * count * (1 if TILED else WIDTH)
    written(words, codes, strip, count, channel, BITS, WIDTH, TILED, True)


@triton.jit
def values_kernel(
    values, static, dynamic, steps, minima, words, tokens, heads, count,
    PER: tl.constexpr, BITS: tl.constexpr, WIDTH: tl.constexpr, ROOM: tl.constexpr,
    TILED: tl.constexpr, FUSED: tl.constexpr,
):  # fmt: skip
    """Find the range of each token of a strip, over the values of PER heads; write their codes."""
    pid, strip = tl.program_id(0).to(tl.int64), tl.program_id(1)
    channel = tl.arange(0, ROOM)
    token = tokens_of(strip, BITS, WIDTH, TILED)
    inside, real = token < tokens, channel < WIDTH
    there = inside[:, None] & real[None, :]
    whole = tl.load(dynamic + pid * PER // heads * tokens + token, mask=inside, other=1)
    low = tl.full([32, ROOM], float("inf"), tl.float32)
    high = -low
    for i in range(PER):
        head = pid * PER + i
        left = free(static, whole, head % heads, token, channel, there, heads, WIDTH)
        at = (head * tokens + token)[:, None] * WIDTH + channel[None, :]
        x = widened(tl.load(values + at, mask=there, other=0.0))
        low = tl.minimum(low, tl.where(left, x, float("inf")))
        high = tl.maximum(high, tl.where(left, x, -float("inf")))
    step, lowest = scales(tl.min(low, 1), tl.max(high, 1), BITS)
    step = rounded(step, steps.dtype.element_ty)
    lowest = rounded(lowest, minima.dtype.element_ty)
    tl.store(steps + pid * tokens + token, step, mask=inside)
    tl.store(minima + pid * tokens + token, lowest, mask=inside)
    lowest, less, inverse, power = ready(widened(lowest), widened(step))
    for i in range(PER):
        head = pid * PER + i
        left = free(static, whole, head % heads, token, channel, there, heads, WIDTH)
        at = (head * tokens + token)[:, None] * WIDTH + channel[None, :]
        x = widened(tl.load(values + at, mask=there, other=0.0))
        codes = coded(
            x, lowest[:, None], less[:, None], inverse[:, None], power[:, None], left, BITS, FUSED
        )
        here = words + head * count * (1 if TILED else WIDTH)
        written(here, codes, strip, count, channel, BITS, WIDTH, TILED, False)


@triton.jit
def restore_kernel(
    words, steps, minima, restored, tokens, heads, groups, count, limit,
    BITS: tl.constexpr, WIDTH: tl.constexpr, ROOM: tl.constexpr, TILED: tl.constexpr,
    KEYS: tl.constexpr,
):  # fmt: skip
    """Write the numbers that the codes of a strip stand for."""
    pid, strip = tl.program_id(0).to(tl.int64), tl.program_id(1)
    channel = tl.arange(0, ROOM)
    token = tokens_of(strip, BITS, WIDTH, TILED)
    inside, real = token < tokens, channel < WIDTH
    words += pid * count * (1 if TILED else WIDTH)
    codes = read(words, strip, count, channel, BITS, WIDTH, ROOM, TILED, KEYS).to(tl.float32)
    if KEYS:
        step = widened(tl.load(steps + pid * WIDTH + channel, mask=real, other=0.0))[None, :]
        low = widened(tl.load(minima + pid * WIDTH + channel, mask=real, other=0.0))[None, :]
    else:
        group = (pid // heads * groups + pid % heads % groups) * tokens + token
        step = widened(tl.load(steps + group, mask=inside, other=0.0))[:, None]
        low = widened(tl.load(minima + group, mask=inside, other=0.0))[:, None]
    x = tl.minimum(tl.maximum(codes * step + low, -limit), limit)
    at = (pid * tokens + token)[:, None] * WIDTH + channel[None, :]
    x = rounded(x, restored.dtype.element_ty)
    tl.store(restored + at, x, mask=inside[:, None] & real[None, :])


def taken(shape: torch.Size, *dtypes: torch.dtype) -> bool:
    """Whether kernels are made for such a span; what they are not made for is handed on."""
    fits = shape[-1] <= WIDEST and shape[-2] <= LONGEST
    return {*dtypes} <= DTYPES and fits and shape.numel() > 0


def coded_span(
    keys: Tensor, values: Tensor, expander: Tensor, dynamic: Tensor, bits: int, value_group: str,
    scales: torch.dtype | None, tiled: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return words, steps and minima of the keys of a span, then of its values."""
    *batch, heads, tokens, width = keys.shape
    keys, values = keys.contiguous(), values.contiguous()
    expander, dynamic = expander.contiguous(), dynamic.contiguous()
    rows, room, tiles = keys.shape[:-3].numel(), triton.next_power_of_2(width), -(-tokens // TILE)
    count = tiles * TILE * width * bits // 32 if tiled else -(-tokens * bits // 32)
    strips = 3 * tiles if tiled else triton.cdiv(tokens, 32)
    words = (*batch, heads, count) if tiled else (*batch, heads, width, count)
    stored = dict(dtype=scale_dtype(keys.dtype, scales), device=keys.device)
    parts = triton.cdiv(tokens, BLOCK)
    lows = keys.new_empty(2, rows * heads, parts, width, dtype=torch.float32)
    key_steps = torch.empty(*batch, heads, width, **stored)
    key_minima = torch.empty_like(key_steps)
    key_words = keys.new_empty(words, dtype=torch.int32)
    groups = heads if value_group == "head" else 1
    value_steps = torch.empty(
        *batch, *[heads] * (groups > 1 or value_group == "head"), tokens, **stored
    )
    value_minima, value_words = torch.empty_like(value_steps), torch.empty_like(key_words)
    masks, shape = (expander, dynamic), dict(WIDTH=width, ROOM=room)
    range_kernel[(rows * heads, parts)](
        keys, *masks, lows[0], lows[1], tokens, heads, parts, **shape, BLOCK=BLOCK
    )
    scales_kernel[(rows * heads,)](
        lows[0], lows[1], key_steps, key_minima, parts, BITS=bits, **shape
    )
    keys_kernel[(rows * heads, strips)](
        keys, *masks, key_steps, key_minima, key_words, tokens, heads, count,
        BITS=bits, **shape, TILED=tiled, FUSED=FUSED,
    )  # fmt: skip
    values_kernel[(rows * groups, strips)](
        values, *masks, value_steps, value_minima, value_words, tokens, heads, count,
        PER=heads // groups, BITS=bits, **shape, TILED=tiled, FUSED=FUSED,
    )  # fmt: skip
    return key_words, key_steps, key_minima, value_words, value_steps, value_minima


def hex_compress(
    keys: Tensor,
    values: Tensor,
    expander: Tensor,
    dynamic: Tensor,
    bits: int,
    value_group: str,
    scales: torch.dtype | None,
) -> HexBlock:
    span = keys, values, expander, dynamic, bits, value_group, scales
    if not taken(keys.shape, keys.dtype, scale_dtype(keys.dtype, scales)):
        return vector.hex_compress(*span)
    codes = coded_span(*span, tiled=False)
    if any(scanning(x) and not bool(x.isfinite().all()) for x in codes if x.is_floating_point()):
        return vector.hex_compress(*span)  # which says what is too large for the scales
    kept = hex_mask(expander, dynamic, keys.shape[-3])
    return HexBlock(bits, *codes, keys[kept], values[kept], dynamic.clone())


def packed(
    keys: Tensor, values: Tensor, expander: Tensor, dynamic: Tensor, bits: int, value_group: str,
    scales: torch.dtype | None,
) -> Run:  # fmt: skip
    """Compress a span as `hex_compress` does, in the layout of the kernels."""
    heads, tokens, width = keys.shape[-3:]
    rows = keys.shape[:-3].numel()
    keys, values = (x.reshape(rows, heads, tokens, width) for x in (keys, values))
    dynamic = dynamic.reshape(rows, tokens)
    span = keys, values, expander, dynamic, bits, value_group, scales
    codes = [x[None] for x in coded_span(*span, tiled=True)]
    codes[0], codes[3] = (x.unflatten(-1, (-(-tokens // TILE), -1)) for x in codes[::3])
    kept = hex_mask(expander, dynamic, heads)
    kept_keys, kept_values = keys[kept], values[kept]
    static = expander.view(tokens, heads, width).sum(-1).T
    return Run(
        bits, tokens, *codes, kept_keys, kept_values, (kept_keys.numel(),), dynamic[None].clone(),
        first_entries(dynamic[None], static, width),
    )  # fmt: skip


def restored(
    stored: tuple[Tensor, ...], dynamic: Tensor, bits: int, dtype: torch.dtype, tiled: bool
) -> list[Tensor]:
    """Return what the codes of keys and of values stand for, `[*batch, heads, tokens, width]`."""
    *batch, heads, width = stored[1].shape
    tokens, grid = dynamic.shape[-1], torch.Size(batch).numel() * heads
    groups = heads if stored[4].ndim == stored[1].ndim else 1
    strips = 3 * -(-tokens // TILE) if tiled else triton.cdiv(tokens, 32)
    found = []
    for x in (stored[:3], stored[3:]):
        words, steps, minima = (part.contiguous() for part in x)
        count = words.numel() // (grid if tiled else grid * width)
        one = words.new_empty(*batch, heads, tokens, width, dtype=dtype)
        restore_kernel[(grid, strips)](
            words, steps, minima, one, tokens, heads, groups, count, torch.finfo(dtype).max,
            BITS=bits, WIDTH=width, ROOM=triton.next_power_of_2(width), TILED=tiled,
            KEYS=not found, enable_fp_fusion=False,
        )  # fmt: skip
        found.append(one)
    return found


def hex_reconstruct(block: HexBlock, expander: Tensor) -> tuple[Tensor, Tensor]:
    dtype, dynamic = block.kept_keys.dtype, block.dynamic
    *batch, heads, width = block.key_steps.shape
    shape = torch.Size((*batch, heads, dynamic.shape[-1], width))
    if not taken(shape, dtype, block.key_steps.dtype):
        return vector.hex_reconstruct(block, expander)
    kept = hex_mask(expander, dynamic, heads)
    keys, values = restored(block[1:7], dynamic, block.bits, dtype, tiled=False)
    keys.masked_scatter_(kept, block.kept_keys)
    return keys, values.masked_scatter_(kept, block.kept_values)


def unpacked(run: Run, expander: Tensor) -> tuple[Tensor, Tensor]:
    """Restore the keys and values of spans in the layout of the kernels."""
    kept = hex_mask(expander, run.dynamic, run.key_steps.shape[-2])
    keys, values = restored(run[2:8], run.dynamic, run.bits, run.kept_keys.dtype, tiled=True)
    keys.masked_scatter_(kept, run.kept_keys)
    return keys, values.masked_scatter_(kept, run.kept_values)
