"""Compress and restore a span of a HEX cache, without unpacked codes in memory.

A strip is 32 tokens of a head, a third of a tile. Its codes fill whole words, in the stream of the
specification and in the layout of the kernels alike. A program restores one strip. To compress, a
program codes some tokens of all heads that share value scales.
"""

# pyright: reportArgumentType=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from optimized import vector
from optimized._dispatch import gradient_fallback
from optimized.hex_packed_layout import TILE
from optimized.kernels._attention_common import DTYPES, WIDEST
from optimized.kernels._numerics import rounded, widened
from optimized.vector.hex.compress import hex_mask
from reference._validation.contract import scanning
from reference.hex.compress import HexBlock
from reference.hex.kcvt import scale_dtype

BLOCK = 1024
"""Tokens over which a program finds the range of each key channel."""
SLICE = 1024
"""Entries that a program of four warps codes at once, eight a lane."""
LONGEST = 32 * 65535
"""The longest span: the second axis of a grid has at most 65535 programs, one a strip."""
EVEN = tl.constexpr(12582912.0)
"""1.5 * 2**23: added to a number up to 2**22, it rounds half to even into the low bits."""
FUSED = not triton.knobs.runtime.interpret
GROUP = 16 if FUSED else 64
"""Channels that are coded at once in the layout of the specification."""


@triton.jit
def tokens_of(strip, BITS: tl.constexpr, WIDTH: tl.constexpr, TILED: tl.constexpr):
    """Return the tokens of a strip in the order of its words."""
    m = tl.arange(0, 32)
    if TILED and BITS == 3:
        # groups of one half belong to tokens that are 3 / 8 of the width apart
        SEVERAL: tl.constexpr = 256 // WIDTH
        row = strip % 3 * (WIDTH // 8) + m // SEVERAL
        return strip // 3 * 96 + row + m % SEVERAL * (3 * WIDTH // 8)
    else:
        return strip * 32 + m


@triton.jit
def free(static, there):
    """Return the mask of entries that exist and that the static mask does not keep."""
    return tl.load(static, mask=there, other=1) == 0


@triton.jit
def scales(low, high, BITS: tl.constexpr):
    """Return the step and minimum of groups from their ranges; 0 for an empty group."""
    empty = low > high
    low, high = tl.where(empty, 0.0, low), tl.where(empty, 0.0, high)
    return tl.math.div_rn(high - low, 2**BITS - 1.0), low


@triton.jit
def multiply_add(x, y, z, FUSED: tl.constexpr):
    """Return x y + z, rounded once; the interpreter has no fused operation and uses float64."""
    if FUSED:
        return tl.fma(x, y, z)
    else:
        return (x.to(tl.float64) * y.to(tl.float64) + z.to(tl.float64)).to(tl.float32)


@triton.jit
def prepared_scales(low, step):
    """Return minima, negated scaled steps, their inverses, and the scale of groups, for `coded`.

    The scale is a power of two, which is exact. It brings a step near 1, so that nothing overflows
    or underflows. It is 0 if the step is 0.
    """
    field = step.to(tl.int32, bitcast=True) >> 23
    power = (tl.maximum(254 - field, 1) << 23).to(tl.float32, bitcast=True)
    power = tl.where(step == 0.0, 0.0, power)
    near = tl.where(step == 0.0, 1.0, step * power)
    return low, -near, tl.math.div_rn(1.0, near), power


@triton.jit
def coded(x, group, free, BITS: tl.constexpr, FUSED: tl.constexpr):
    """Return the codes of numbers, given the result of `prepared_scales` for their groups.

    The quotient of x - low and the step is correctly rounded, as by a division. A product with the
    inverse has a remainder that is computed exactly and corrected twice (Markstein).
    """
    low, less, inverse, power = group
    beyond = (x - low) * power
    place = beyond * inverse
    place = multiply_add(multiply_add(place, less, beyond, FUSED), inverse, place, FUSED)
    place = multiply_add(multiply_add(place, less, beyond, FUSED), inverse, place, FUSED)
    # numbers far beyond the range, under a coarse step, would be too large for rounding by EVEN
    place = tl.minimum(tl.maximum(place, 0.0), 2**BITS - 1.0) + EVEN
    return tl.where(free, place.to(tl.uint32, bitcast=True) & (2**BITS - 1), 0)


@triton.jit
def plane(fields, p: tl.constexpr, THREE: tl.constexpr):
    """Return plane p of the halves of words, given all codes of a half in one number."""
    if THREE:
        spare = (fields >> (45 + p) & 1) << 15
        fields = fields >> (15 * p) & 0x7FFF | spare
    return fields.to(tl.uint32)


@triton.jit
def store_stream(words, codes, strip, count, there, BITS: tl.constexpr):
    """Write the codes of a strip as words of the specification's stream, `count` a channel."""
    m = tl.arange(0, 32)
    for k in tl.static_range(BITS):
        left = BITS * m - 32 * k
        up, down = tl.minimum(tl.maximum(left, 0), 31), tl.minimum(tl.maximum(-left, 0), 31)
        here = (codes << up[None, :, None]) >> down[None, :, None]
        mine = (left > -BITS) & (left < 32)
        word = tl.sum(tl.where(mine[None, :, None], here, 0), 1, keep_dims=True)
        at = strip * BITS + k
        tl.store(words + at, word.to(tl.int32, bitcast=True), mask=there & (at < count))


@triton.jit
def load_codes(
    words, strip, count, channel, BITS: tl.constexpr, WIDTH: tl.constexpr, ROOM: tl.constexpr,
    TILED: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Return the codes of a strip, `[tokens, channels]`."""
    if not TILED:
        first = BITS * tl.arange(0, 32)
        at, place = strip * BITS + first // 32, (first % 32)[:, None]
        mine = (channel < WIDTH)[None, :]
        here = words + channel[None, :] * count
        low = tl.load(here + at[:, None], mask=mine & (at < count)[:, None], other=0)
        codes = low.to(tl.uint32, bitcast=True) >> place
        if 32 % BITS != 0:
            on = at + (first + BITS - 1) // 32 - first // 32  # the word with the upper bits
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
    """Write the range of each key channel over some tokens."""
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
        there &= (tl.load(flags + token, mask=inside, other=1) == 0)[:, None]
        at = (token.to(tl.int64) * heads + pid % heads)[:, None] * WIDTH + channel[None, :]
        left = free(static + at, there)
        at = (pid * tokens + token)[:, None] * WIDTH + channel[None, :]
        x = widened(tl.load(keys + at, mask=there, other=0.0))
        low = tl.minimum(low, tl.where(left, x, float("inf")))
        high = tl.maximum(high, tl.where(left, x, -float("inf")))
    at = (pid * parts + part) * WIDTH + channel
    tl.store(lows + at, tl.min(low, 0), mask=channel < WIDTH)
    tl.store(highs + at, tl.max(high, 0), mask=channel < WIDTH)


@triton.jit
def scales_kernel(
    lows, highs, steps, minima, prepared, parts,
    BITS: tl.constexpr, WIDTH: tl.constexpr, ROOM: tl.constexpr,
):  # fmt: skip
    """Merge the ranges of a head's channels; write steps, minima, and `prepared_scales` of them."""
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
    step, low = rounded(step, steps.dtype.element_ty), rounded(low, minima.dtype.element_ty)
    at, real = pid * WIDTH + channel, channel < WIDTH
    tl.store(steps + at, step, mask=real)
    tl.store(minima + at, low, mask=real)
    several = tl.num_programs(0) * WIDTH
    low, less, inverse, power = prepared_scales(widened(low), widened(step))
    tl.store(prepared + at, low, mask=real)
    tl.store(prepared + several + at, less, mask=real)
    tl.store(prepared + 2 * several + at, inverse, mask=real)
    tl.store(prepared + 3 * several + at, power, mask=real)


@triton.jit
def codes_kernel(
    keys, values, static, dynamic, prepared, key_words, value_words, steps, minima, tokens, heads,
    count, parts, several,
    PER: tl.constexpr, HEADS: tl.constexpr, ROWS: tl.constexpr, GROUP: tl.constexpr,
    BITS: tl.constexpr, WIDTH: tl.constexpr, TILED: tl.constexpr, FUSED: tl.constexpr,
):  # fmt: skip
    """Find the value range of some tokens over PER heads; write all codes of keys and values.

    The codes of a word come slice by slice, GROUP channels of a token, so that each lane builds
    whole words. In tiles, even and odd tokens fill separate halves, and TURNS tokens share a half.
    """
    THREE: tl.constexpr = TILED and BITS == 3
    SLICES: tl.constexpr = (WIDTH + GROUP - 1) // GROUP
    PARTS: tl.constexpr = 1 if THREE else WIDTH * BITS // 16 // GROUP if TILED else SLICES
    TURNS: tl.constexpr = 256 // WIDTH if THREE else 1
    HALVES: tl.constexpr = 2 if TILED else 1
    EACH: tl.constexpr = 96 // (TURNS * HALVES)  # rows of a tile
    pid, part = (tl.program_id(0) // parts).to(tl.int64), tl.program_id(0) % parts
    h, c = tl.arange(0, HEADS)[:, None, None], tl.arange(0, GROUP)[None, None, :]
    head, own = pid * PER + h, h < PER
    y = part * ROWS + tl.arange(0, ROWS)
    found = ()
    for turn in tl.static_range(TURNS):
        for half in tl.static_range(HALVES):
            token = y // EACH * 96 + y % EACH * HALVES + turn * (EACH * HALVES) + half
            inside = token < tokens
            whole = tl.load(dynamic + pid * PER // heads * tokens + token, mask=inside, other=1)
            there = (inside & (whole == 0))[None, :, None] & own
            mark = token.to(tl.int64)[None, :, None] * heads + pid * PER % heads + h
            mark = mark * WIDTH + c
            at = (head * tokens + token[None, :, None]) * WIDTH + c
            low = tl.full([HEADS, ROWS, GROUP], float("inf"), tl.float32)
            high = -low
            for v in range(SLICES):
                mine = there & (v * GROUP + c < WIDTH)
                left = free(static + mark + v * GROUP, mine)
                x = widened(tl.load(values + at + v * GROUP, mask=mine, other=0.0))
                low = tl.minimum(low, tl.where(left, x, float("inf")))
                high = tl.maximum(high, tl.where(left, x, -float("inf")))
            step, least = scales(tl.min(tl.min(low, 2), 0), tl.max(tl.max(high, 2), 0), BITS)
            step = rounded(step, steps.dtype.element_ty)
            least = rounded(least, minima.dtype.element_ty)
            tl.store(steps + pid * tokens + token, step, mask=inside)
            tl.store(minima + pid * tokens + token, least, mask=inside)
            group = prepared_scales(widened(least)[None, :, None], widened(step)[None, :, None])
            found += ((there, mark, at, group),)
    for p in range(PARTS):
        of_keys, of_values = (), ()
        for half in tl.static_range(HALVES):
            key_fields = tl.zeros([HEADS, ROWS, GROUP], tl.uint64 if THREE else tl.uint32)
            value_fields = key_fields
            for turn in tl.static_range(TURNS - 1, -1, -1):
                there, mark, at, group = found[turn * HALVES + half]
                for back in range(SLICES // PARTS):
                    v = p + SLICES - PARTS * (1 + back)
                    mine = there & (v * GROUP + c < WIDTH)
                    left = free(static + mark + v * GROUP, mine)
                    x = widened(tl.load(values + at + v * GROUP, mask=mine, other=0.0))
                    codes = coded(x, group, left, BITS, FUSED)
                    value_fields = value_fields << BITS | codes
                    x = widened(tl.load(keys + at + v * GROUP, mask=mine, other=0.0))
                    channel = prepared + head * WIDTH + v * GROUP + c
                    of_channel = (
                        tl.load(channel, mask=mine, other=0.0),
                        tl.load(channel + several, mask=mine, other=0.0),
                        tl.load(channel + 2 * several, mask=mine, other=0.0),
                        tl.load(channel + 3 * several, mask=mine, other=0.0),
                    )
                    codes = coded(x, of_channel, left, BITS, FUSED)
                    key_fields = key_fields << BITS | codes
            of_keys += (key_fields,)
            of_values += (value_fields,)
        if TILED:
            LEAP: tl.constexpr = 16 if THREE else WIDTH * BITS // 16  # to the next row
            tile, row = (y // EACH)[None, :, None] * (3 * WIDTH * BITS), (y % EACH)[None, :, None]
            stored = own & (tile < count)
            for q in tl.static_range(3 if THREE else 1):
                begin = head * count + tile + q * (3 * WIDTH)
                for half in tl.static_range(2):
                    word = plane(of_keys[half], q, THREE)
                    even, odd = tl.split(tl.reshape(word, (HEADS, ROWS, GROUP // 2, 2)))
                    place = begin + (2 * row + half) * (LEAP // 2) + p * (GROUP // 2)
                    place += tl.arange(0, GROUP // 2)[None, None, :]
                    tl.store(
                        key_words + place, (even | odd << 16).to(tl.int32, bitcast=True), stored
                    )
                word = plane(of_values[0], q, THREE) | plane(of_values[1], q, THREE) << 16
                place = begin + row * LEAP + p * GROUP + c
                tl.store(value_words + place, word.to(tl.int32, bitcast=True), stored)
        else:
            channel = p * GROUP + c
            place, stored = (head * WIDTH + channel) * count, own & (channel < WIDTH)
            store_stream(key_words + place, of_keys[0], part, count, stored, BITS)
            store_stream(value_words + place, of_values[0], part, count, stored, BITS)


@triton.jit
def restore_kernel(
    words, steps, minima, restored, tokens, heads, groups, count,
    BITS: tl.constexpr, WIDTH: tl.constexpr, ROOM: tl.constexpr, TILED: tl.constexpr,
    KEYS: tl.constexpr,
):  # fmt: skip
    """Write the restored numbers of a strip."""
    pid, strip = tl.program_id(0).to(tl.int64), tl.program_id(1)
    channel = tl.arange(0, ROOM)
    token = tokens_of(strip, BITS, WIDTH, TILED)
    inside, real = token < tokens, channel < WIDTH
    words += pid * count * (1 if TILED else WIDTH)
    codes = load_codes(words, strip, count, channel, BITS, WIDTH, ROOM, TILED, KEYS).to(tl.float32)
    if KEYS:
        step = widened(tl.load(steps + pid * WIDTH + channel, mask=real, other=0.0))[None, :]
        low = widened(tl.load(minima + pid * WIDTH + channel, mask=real, other=0.0))[None, :]
    else:
        group = (pid // heads * groups + pid % heads % groups) * tokens + token
        step = widened(tl.load(steps + group, mask=inside, other=0.0))[:, None]
        low = widened(tl.load(minima + group, mask=inside, other=0.0))[:, None]
    at = (pid * tokens + token)[:, None] * WIDTH + channel[None, :]
    x = rounded(codes * step + low, restored.dtype.element_ty)
    tl.store(restored + at, x, mask=inside[:, None] & real[None, :])


def taken(shape: torch.Size, *dtypes: torch.dtype) -> bool:
    """Whether the kernels support such a span; if not, the caller falls back to PyTorch."""
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
    prepared = keys.new_empty(4, rows * heads, width, dtype=torch.float32)
    scales_kernel[(rows * heads,)](
        lows[0], lows[1], key_steps, key_minima, prepared, parts, BITS=bits, **shape
    )
    per = heads // groups
    together, group = triton.next_power_of_2(per), min(room, GROUP)
    if tiled:
        group = 16 if bits == 3 else min(16, width * bits // 16)
    own = max(1, SLICE // (together * group)) if tiled else 32
    places = tiles * (3 * width // 16 if bits == 3 else 48) if tiled else tokens
    strips = triton.cdiv(places, own)
    codes_kernel[(rows * groups * strips,)](
        keys, values, *masks, prepared, key_words, value_words, value_steps, value_minima,
        tokens, heads, count, strips, prepared[0].numel(),
        PER=per, HEADS=together, ROWS=own, GROUP=group, BITS=bits, WIDTH=width, TILED=tiled,
        FUSED=FUSED, num_warps=min(16, max(4, together * own * group // SLICE)),
    )  # fmt: skip
    return key_words, key_steps, key_minima, value_words, value_steps, value_minima


@gradient_fallback(vector.hex_compress)
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
        return vector.hex_compress(*span)  # raises, naming what is too large for the scales
    kept = hex_mask(expander, dynamic, keys.shape[-3])
    return HexBlock(bits, *codes, keys[kept], values[kept], dynamic.clone())


def restored(
    stored: tuple[Tensor, ...], dynamic: Tensor, bits: int, dtype: torch.dtype, tiled: bool
) -> list[Tensor]:
    """Return keys and values restored from codes alone, `[*batch, heads, tokens, width]`."""
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
            words, steps, minima, one, tokens, heads, groups, count,
            BITS=bits, WIDTH=width, ROOM=triton.next_power_of_2(width), TILED=tiled,
            KEYS=not found, enable_fp_fusion=False,
        )  # fmt: skip
        found.append(one)
    return found


@gradient_fallback(vector.hex_reconstruct)
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
