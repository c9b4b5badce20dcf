"""Compress and restore a span of a HEX cache, without unpacked codes in memory.

A strip is 32 tokens of a head, whose codes fill whole words. A program restores one strip. To
compress, a program codes the strips of all heads that share value scales.
"""

# pyright: reportArgumentType=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from optimized import vector
from optimized._dispatch import gradient_fallback
from optimized.kernels._attention_common import DTYPES, WIDEST
from optimized.kernels._numerics import round_to_dtype, widened
from optimized.vector.hex.compress import hex_mask
from reference.contract.enforce import may_read_values
from reference.contract.types import BothBits
from reference.hex.compress import HexBlock
from reference.hex.kcvt import bits_of_both, scale_dtype

BLOCK = 1024
"""Tokens over which a program finds the range of each key channel."""
SLICE = 512
"""Entries that a program of four warps codes at once, four per lane."""
LONGEST = 32 * 65535
"""The longest span: the second axis of a grid has at most 65535 programs, one per strip."""
EVEN = tl.constexpr(12582912.0)
"""1.5 * 2**23: added to a number up to 2**22, it rounds half to even into the low bits."""
GROUP = 64 if triton.knobs.runtime.interpret else 16
"""Channels that are coded at once."""


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
def coded(x, low, step, free, BITS: tl.constexpr):
    """Return the codes of numbers: how many steps they lie above the minimum of their group."""
    flat = step == 0.0
    level = tl.where(flat, 0.0, tl.math.div_rn(x - low, tl.where(flat, 1.0, step)))
    # clamped before rounding, since EVEN rounds only numbers up to 2**22
    level = tl.minimum(tl.maximum(level, 0.0), 2**BITS - 1.0) + EVEN
    return tl.where(free, level.to(tl.uint32, bitcast=True) & (2**BITS - 1), 0)


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
        index = strip * BITS + k
        tl.store(words + index, word.to(tl.int32, bitcast=True), mask=there & (index < count))


@triton.jit
def load_codes(words, strip, count, channel, BITS: tl.constexpr, WIDTH: tl.constexpr):
    """Return the codes of a strip, `[tokens, channels]`."""
    first = BITS * tl.arange(0, 32)
    index, shift = strip * BITS + first // 32, (first % 32)[:, None]
    mine = (channel < WIDTH)[None, :]
    here = words + channel[None, :] * count
    low = tl.load(here + index[:, None], mask=mine & (index < count)[:, None], other=0)
    codes = low.to(tl.uint32, bitcast=True) >> shift
    if 32 % BITS != 0:
        on = index + (first + BITS - 1) // 32 - first // 32  # the word with the upper bits
        high = tl.load(here + on[:, None], mask=mine & (on < count)[:, None], other=0)
        rest = high.to(tl.uint32, bitcast=True) << ((32 - shift) % 32)
        codes |= tl.where((on > index)[:, None], rest, 0)
    return codes & (2**BITS - 1)


@triton.jit(do_not_specialize=["tokens", "parts"])
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
        offset = (token.to(tl.int64) * heads + pid % heads)[:, None] * WIDTH + channel[None, :]
        left = free(static + offset, there)
        offset = (pid * tokens + token)[:, None] * WIDTH + channel[None, :]
        x = widened(tl.load(keys + offset, mask=there, other=0.0))
        low = tl.minimum(low, tl.where(left, x, float("inf")))
        high = tl.maximum(high, tl.where(left, x, -float("inf")))
    offset = (pid * parts + part) * WIDTH + channel
    tl.store(lows + offset, tl.min(low, 0), mask=channel < WIDTH)
    tl.store(highs + offset, tl.max(high, 0), mask=channel < WIDTH)


@triton.jit(do_not_specialize=["parts"])
def scales_kernel(
    lows, highs, steps, minima, parts,
    BITS: tl.constexpr, WIDTH: tl.constexpr, ROOM: tl.constexpr,
):  # fmt: skip
    """Merge the ranges of a head's channels, and write their steps and minima."""
    pid = tl.program_id(0).to(tl.int64)
    part, channel = tl.arange(0, 16), tl.arange(0, ROOM)
    low = tl.full([16, ROOM], float("inf"), tl.float32)
    high = -low
    for start in range(0, parts, 16):
        there = (start + part < parts)[:, None] & (channel < WIDTH)[None, :]
        offset = (pid * parts + start + part)[:, None] * WIDTH + channel[None, :]
        low = tl.minimum(low, tl.load(lows + offset, mask=there, other=float("inf")))
        high = tl.maximum(high, tl.load(highs + offset, mask=there, other=-float("inf")))
    step, low = scales(tl.min(low, 0), tl.max(high, 0), BITS)
    offset, real = pid * WIDTH + channel, channel < WIDTH
    tl.store(steps + offset, round_to_dtype(step, steps.dtype.element_ty), mask=real)
    tl.store(minima + offset, round_to_dtype(low, minima.dtype.element_ty), mask=real)


@triton.jit(do_not_specialize=["tokens", "count", "strips"])
def codes_kernel(
    keys, values, static, dynamic, key_steps, key_minima, key_words, value_words, steps, minima,
    tokens, heads, count, strips,
    PER: tl.constexpr, HEADS: tl.constexpr, GROUP: tl.constexpr, BITS: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """Find the value range of a strip over PER heads; write all codes of keys and values.

    Codes come slice by slice, GROUP channels of all tokens, so that each lane builds whole words.
    """
    SLICES: tl.constexpr = (WIDTH + GROUP - 1) // GROUP
    pid, strip = (tl.program_id(0) // strips).to(tl.int64), tl.program_id(0) % strips
    h, c = tl.arange(0, HEADS)[:, None, None], tl.arange(0, GROUP)[None, None, :]
    head, own = pid * PER + h, h < PER
    token = strip * 32 + tl.arange(0, 32)
    inside = token < tokens
    whole = tl.load(dynamic + pid * PER // heads * tokens + token, mask=inside, other=1)
    there = (inside & (whole == 0))[None, :, None] & own
    static += (token.to(tl.int64)[None, :, None] * heads + pid * PER % heads + h) * WIDTH
    offset = (head * tokens + token[None, :, None]) * WIDTH
    low = tl.full([HEADS, 32, GROUP], float("inf"), tl.float32)
    high = -low
    for v in range(SLICES):
        channel = v * GROUP + c
        mine = there & (channel < WIDTH)
        left = free(static + channel, mine)
        x = widened(tl.load(values + offset + channel, mask=mine, other=0.0))
        low = tl.minimum(low, tl.where(left, x, float("inf")))
        high = tl.maximum(high, tl.where(left, x, -float("inf")))
    step, least = scales(tl.min(tl.min(low, 2), 0), tl.max(tl.max(high, 2), 0), BITS)
    step = round_to_dtype(step, steps.dtype.element_ty)
    least = round_to_dtype(least, minima.dtype.element_ty)
    tl.store(steps + pid * tokens + token, step, mask=inside)
    tl.store(minima + pid * tokens + token, least, mask=inside)
    step, least = widened(step)[None, :, None], widened(least)[None, :, None]
    for v in range(SLICES):
        channel = v * GROUP + c
        mine = there & (channel < WIDTH)
        left = free(static + channel, mine)
        stream, stored = (head * WIDTH + channel) * count, own & (channel < WIDTH)
        x = widened(tl.load(values + offset + channel, mask=mine, other=0.0))
        codes = coded(x, least, step, left, BITS)
        store_stream(value_words + stream, codes, strip, count, stored, BITS)
        x = widened(tl.load(keys + offset + channel, mask=mine, other=0.0))
        here = head * WIDTH + channel
        key_step = widened(tl.load(key_steps + here, mask=mine, other=0.0))
        key_low = widened(tl.load(key_minima + here, mask=mine, other=0.0))
        codes = coded(x, key_low, key_step, left, BITS)
        store_stream(key_words + stream, codes, strip, count, stored, BITS)


@triton.jit(do_not_specialize=["tokens", "count"])
def restore_kernel(
    words, steps, minima, restored, tokens, heads, groups, count,
    BITS: tl.constexpr, WIDTH: tl.constexpr, ROOM: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Write the restored numbers of a strip."""
    pid, strip = tl.program_id(0).to(tl.int64), tl.program_id(1)
    channel = tl.arange(0, ROOM)
    token = strip * 32 + tl.arange(0, 32)
    inside, real = token < tokens, channel < WIDTH
    words += pid * count * WIDTH
    codes = load_codes(words, strip, count, channel, BITS, WIDTH).to(tl.float32)
    if KEYS:
        step = widened(tl.load(steps + pid * WIDTH + channel, mask=real, other=0.0))[None, :]
        low = widened(tl.load(minima + pid * WIDTH + channel, mask=real, other=0.0))[None, :]
    else:
        group = (pid // heads * groups + pid % heads % groups) * tokens + token
        step = widened(tl.load(steps + group, mask=inside, other=0.0))[:, None]
        low = widened(tl.load(minima + group, mask=inside, other=0.0))[:, None]
    offset = (pid * tokens + token)[:, None] * WIDTH + channel[None, :]
    x = round_to_dtype(codes * step + low, restored.dtype.element_ty)
    tl.store(restored + offset, x, mask=inside[:, None] & real[None, :])


def taken(shape: torch.Size, *dtypes: torch.dtype) -> bool:
    """Whether the kernels support such a span; if not, the caller falls back to PyTorch."""
    fits = shape[-1] <= WIDEST and shape[-2] <= LONGEST
    return {*dtypes} <= DTYPES and fits and shape.numel() > 0


def coded_span(
    keys: Tensor, values: Tensor, expander: Tensor, dynamic: Tensor, bits: int, value_group: str,
    scales: torch.dtype | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return words, steps and minima of the keys of a span, then of its values."""
    *batch, heads, tokens, width = keys.shape
    keys, values = keys.contiguous(), values.contiguous()
    expander, dynamic = expander.contiguous(), dynamic.contiguous()
    rows, room = keys.shape[:-3].numel(), triton.next_power_of_2(width)
    count = -(-tokens * bits // 32)
    stored = dict(dtype=scale_dtype(keys.dtype, scales), device=keys.device)
    parts = triton.cdiv(tokens, BLOCK)
    lows = keys.new_empty(2, rows * heads, parts, width, dtype=torch.float32)
    key_steps = torch.empty(*batch, heads, width, **stored)
    key_minima = torch.empty_like(key_steps)
    key_words = keys.new_empty(*batch, heads, width, count, dtype=torch.int32)
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
    per = heads // groups
    together, group = triton.next_power_of_2(per), min(room, GROUP)
    strips = triton.cdiv(tokens, 32)
    codes_kernel[(rows * groups * strips,)](
        keys, values, *masks, key_steps, key_minima, key_words, value_words,
        value_steps, value_minima, tokens, heads, count, strips,
        PER=per, HEADS=together, GROUP=group, BITS=bits, WIDTH=width,
        num_warps=min(16, max(4, together * 32 * group // SLICE)),
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
    codes = coded_span(*span)
    if any(
        may_read_values(x) and not bool(x.isfinite().all()) for x in codes if x.is_floating_point()
    ):
        return vector.hex_compress(*span)  # raises, naming what is too large for the scales
    kept = hex_mask(expander, dynamic, keys.shape[-3]).flatten().nonzero()[:, 0]  # waits once
    exact = (x.reshape(-1).index_select(0, kept) for x in (keys, values))
    return HexBlock(bits, *codes, *exact, dynamic.clone())


def restored(
    stored: tuple[Tensor, ...], dynamic: Tensor, bits: BothBits, dtype: torch.dtype
) -> list[Tensor]:
    """Return keys and values restored from codes alone, `[*batch, heads, tokens, width]`."""
    *batch, heads, width = stored[1].shape
    tokens, grid = dynamic.shape[-1], torch.Size(batch).numel() * heads
    groups = heads if stored[4].ndim == stored[1].ndim else 1
    strips = triton.cdiv(tokens, 32)
    found = []
    for x, code_bits in zip((stored[:3], stored[3:]), bits_of_both(bits), strict=True):
        words, steps, minima = (part.contiguous() for part in x)
        count = words.shape[-1]
        result = words.new_empty(*batch, heads, tokens, width, dtype=dtype)
        restore_kernel[(grid, strips)](
            words, steps, minima, result, tokens, heads, groups, count,
            BITS=code_bits, WIDTH=width, ROOM=triton.next_power_of_2(width), KEYS=not found,
            enable_fp_fusion=False,
        )  # fmt: skip
        found.append(result)
    return found


@gradient_fallback(vector.hex_reconstruct)
def hex_reconstruct(block: HexBlock, expander: Tensor) -> tuple[Tensor, Tensor]:
    dtype, dynamic = block.kept_keys.dtype, block.dynamic
    *batch, heads, width = block.key_steps.shape
    shape = torch.Size((*batch, heads, dynamic.shape[-1], width))
    if not taken(shape, dtype, block.key_steps.dtype):
        return vector.hex_reconstruct(block, expander)
    kept = hex_mask(expander, dynamic, heads)
    keys, values = restored(block[1:7], dynamic, block.bits, dtype)
    keys.masked_scatter_(kept, block.kept_keys)
    return keys, values.masked_scatter_(kept, block.kept_values)
