"""Exact selection without a sort: the digits of the last key kept, then the rank of its ties.

A program owns a block of what is next to each other in a pool. The keys are integers that order and
tie as the scores do. Kernel after kernel counts how often each value of the next digit occurs among
the keys that share the digits found so far; the counts say which value completes the budget.
Counters are integers, so that no order of programs changes a result.
"""

from math import prod

import torch
import triton
import triton.language as tl
from torch import Tensor

from optimized import vector
from optimized.kernels._device import is_one_row
from reference.contract import scanning
from reference.retain import covers_protected, kept_count, pooled
from reference.rules import AXES

BLOCK = 4096
TILES = 1024  # counts that one program adds up at a time

INTEGERS = {
    torch.bfloat16: torch.int16,
    torch.float16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}
DIGITS = {2: (6, 5, 5), 4: (8,) * 4, 8: (8,) * 8}
"""Bits of the digits of a key, by its bytes."""
MOST = 256  # values of a digit


@triton.jit
def place(tiles, pools):
    """Return the program's stretch, its tile there, its pool, and the tile's rank in the pool.

    Scores are laid out `[layers, pools, stretch]`; what has no layers has one.
    """
    stretch = tl.program_id(0) // tiles
    tile = tl.program_id(0) % tiles
    rank = stretch // pools * tiles + tile
    return stretch.to(tl.int64), tile.to(tl.int64), (stretch % pools).to(tl.int64), rank


@triton.jit
def block_of(stretch, tile, length, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    """Return where a block starts, its places from there, and which of them are in the stretch."""
    start, i = tile * BLOCK, tl.arange(0, BLOCK)
    inside = (i >= 0) if EVEN else (i < tl.minimum(length - start, BLOCK).to(tl.int32))
    return stretch * length + start, i, inside


@triton.jit
def made(bits, aside, SHIELDED: tl.constexpr):
    """Return unsigned keys, as wide as the scores, that order and tie as they do."""
    unsigned: tl.constexpr = tl.core.get_int_dtype(bits.dtype.primitive_bitwidth, False)
    most: tl.constexpr = 2 ** (bits.dtype.primitive_bitwidth - 1) - 1
    if bits.dtype.primitive_bitwidth == 16:
        bits = bits.to(tl.int32)
    # minus zero becomes zero
    bits = tl.where(bits < 0, -(bits & most), bits)
    if SHIELDED:
        # no score has the largest key, for plus infinity and NaN are refused
        bits = tl.where(aside, most, bits)
    if unsigned == tl.uint16:
        return (bits + 32768).to(unsigned)
    elif unsigned == tl.uint32:
        return bits.to(unsigned, bitcast=True) ^ 0x80000000
    else:
        return bits.to(unsigned, bitcast=True) ^ 0x8000000000000000


@triton.jit
def loaded(keys, start, i, inside):
    """Return keys that were stored, of at least 32 bits."""
    key = tl.load(keys + start + i, mask=inside, other=0)
    key = key.to(tl.core.get_int_dtype(key.dtype.primitive_bitwidth, False), bitcast=True)
    return key.to(tl.uint32) if key.dtype == tl.uint16 else key


@triton.jit
def pick(found, counts, pool, BINS: tl.constexpr, MOST: tl.constexpr):
    """Return the digits found with one more, and how many keys that share them are kept.

    The digit is the largest for which so many keys have it or a larger one.
    """
    before = tl.load(found + pool * 2)
    bins = tl.arange(0, BINS)
    count = tl.load(counts + pool * MOST + bins)
    need = tl.load(found + pool * 2 + 1).to(count.dtype)
    digit = tl.maximum(tl.sum((tl.cumsum(count, 0, reverse=True) >= need).to(tl.int32), 0) - 1, 0)
    above = tl.sum(tl.where(bins > digit, count, 0), 0)
    return before * BINS + digit, need - above


@triton.jit
def counted(digit, match, counts, BINS: tl.constexpr):
    """Count the digits of a block, and add them up over the pool."""
    count = tl.histogram(digit, BINS, mask=match)
    here = counts + tl.arange(0, BINS)
    tl.atomic_add(here, count.to(counts.dtype.element_ty), mask=count > 0, sem="relaxed")
    return count


@triton.jit
def key_kernel(
    scores, protected, keys, counts, length, row, tiles, pools,
    SHIFT: tl.constexpr, BITS: tl.constexpr, MOST: tl.constexpr,
    EVEN: tl.constexpr, SHIELDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Make the keys of a block, and count their first digits."""
    stretch, tile, pool, _ = place(tiles, pools)
    start, i, inside = block_of(stretch, tile, length, EVEN, BLOCK)
    bits = tl.load(scores + start + i, mask=inside, other=0)
    aside = inside
    if SHIELDED:
        # a mask that all rows share is one row long
        aside = tl.load(protected + start % row + i, mask=inside, other=0) != 0
    key = made(bits, aside, SHIELDED)
    tl.store(keys + start + i, key.to(bits.dtype, bitcast=True), mask=inside)
    digit = (key >> SHIFT).to(tl.int32)
    counted(digit, inside, counts + pool * MOST, 2**BITS)


@triton.jit
def count_kernel(
    keys, found, counts, ties, length, tiles, pools,
    STEP: tl.constexpr, SHIFT: tl.constexpr, BITS: tl.constexpr, BEFORE: tl.constexpr,
    LAST: tl.constexpr, MOST: tl.constexpr, EVEN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Count the digits of a block's keys at a step after the first."""
    stretch, tile, pool, rank = place(tiles, pools)
    start, i, inside = block_of(stretch, tile, length, EVEN, BLOCK)
    key = loaded(keys, start, i, inside)
    before = found + (STEP - 1) * 2 * pools
    prefix, need = pick(before, counts + (STEP - 1) * MOST * pools, pool, BEFORE, MOST)
    if rank == 0:
        tl.store(before + (pools + pool) * 2, prefix)
        tl.store(before + (pools + pool) * 2 + 1, need)
    match = inside & ((key >> (SHIFT + BITS)) == prefix.to(key.dtype))
    some = True
    if STEP > 2:
        some = tl.max(match.to(tl.int32), 0) > 0
    BINS: tl.constexpr = 2**BITS
    count = tl.zeros([BINS], tl.int32)
    if some:
        digit = (key >> SHIFT).to(tl.int32) & (BINS - 1)
        count = counted(digit, match, counts + (STEP * pools + pool) * MOST, BINS)
    if LAST:
        total = tl.num_programs(0) // pools
        tl.store(ties + (pool * total + rank) * BINS + tl.arange(0, BINS), count)


@triton.jit
def cut_kernel(
    keys, found, counts, ties, cuts, length, tiles, pools, total,
    STEP: tl.constexpr, BINS: tl.constexpr, MOST: tl.constexpr, TILES: tl.constexpr,
    EVEN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Find where a pool ends: its last key, and before which place ties of that are kept."""
    pool = tl.program_id(0).to(tl.int64)
    last, need = pick(found + STEP * 2 * pools, counts + STEP * MOST * pools, pool, BINS, MOST)
    # tiles that keep all of their ties
    whole, kept, seen = 0, need * 0, need * 0
    for first in range(0, total, TILES):
        rank = first + tl.arange(0, TILES)
        here = ties + (pool * total + rank) * BINS + (last % BINS).to(tl.int32)
        count = tl.load(here, mask=rank < total, other=0).to(need.dtype)
        short = (rank < total) & (seen + tl.cumsum(count, 0) < need)
        whole += tl.sum(short.to(tl.int32), 0)
        kept += tl.sum(tl.where(short, count, 0), 0)
        seen += tl.sum(count, 0)
    whole = tl.minimum(whole, total - 1)
    stretch = (whole // tiles).to(tl.int64) * pools + pool
    tile = (whole % tiles).to(tl.int64)
    start, i, inside = block_of(stretch, tile, length, EVEN, BLOCK)
    key = loaded(keys, start, i, inside)
    equal = ((key == last.to(key.dtype)) & inside).to(tl.int32)
    before = tl.cumsum(equal, 0) - equal
    end = whole.to(tl.int64) * BLOCK + tl.sum((before < need - kept).to(tl.int32), 0)
    tl.store(cuts + pool * 2, last)
    tl.store(cuts + pool * 2 + 1, end)


@triton.jit
def mark_kernel(
    keys, cuts, kept, length, tiles, pools, EVEN: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Mark what a block keeps: all above the last key, and its ties before the end."""
    stretch, tile, pool, rank = place(tiles, pools)
    start, i, inside = block_of(stretch, tile, length, EVEN, BLOCK)
    key = loaded(keys, start, i, inside)
    last = tl.load(cuts + pool * 2).to(key.dtype)
    end = tl.load(cuts + pool * 2 + 1) - rank.to(tl.int64) * BLOCK
    end = tl.minimum(tl.maximum(end, 0), BLOCK).to(tl.int32)
    marked = (key > last) | ((key == last) & (i < end))
    tl.store(kept + start + i, marked, mask=inside)


def retain(
    scores: Tensor,
    protected: Tensor | None,
    *,
    keep: int | Tensor | None,
    ratio: float | None,
    scope: str,
) -> Tensor:
    if scores.dtype not in INTEGERS:
        return vector.retain(scores, protected, keep=keep, ratio=ratio, scope=scope)
    kept = torch.empty(scores.shape, dtype=torch.bool, device=scores.device)
    if not scores.numel():
        return kept
    layers = scores.shape[0] if scope == "model" else 1
    length = prod(scores.shape[-min(AXES[scope], 2) :])
    pools = scores.numel() // (layers * length)
    if layers > 1 and pools == 1:
        layers, length = 1, layers * length
    if ratio is not None:
        keep = kept_count(layers * length, ratio)
    block = min(BLOCK, triton.next_power_of_2(length))
    tiles = triton.cdiv(length, block)
    programs, rank = (layers * pools * tiles,), layers * tiles
    bits = scores.contiguous().view(INTEGERS[scores.dtype])
    aside, row = (bits, 1) if protected is None else laid_out(protected, block)
    digits = DIGITS[scores.itemsize]
    # what the keys of a pool begin with, and how many of those are kept, before each step
    found = scores.new_zeros((len(digits), pools, 2), dtype=torch.int64)
    found[0, :, 1] = keep.flatten() if isinstance(keep, Tensor) else keep
    few = layers * length < 2**31
    counter = torch.int32 if few else torch.int64
    counts = scores.new_zeros((len(digits), pools, MOST), dtype=counter)
    ties = scores.new_empty((pools * rank, 2 ** digits[-1]), dtype=torch.int32)
    cuts = scores.new_empty((pools, 2), dtype=torch.int64)
    keys = torch.empty_like(bits)
    places = (length, tiles, pools)
    even = dict(EVEN=length % block == 0, BLOCK=block)
    key_kernel[programs](
        bits, aside, keys, counts, length, row, tiles, pools,
        SHIFT=sum(digits[1:]), BITS=digits[0], MOST=MOST, SHIELDED=protected is not None, **even,
    )  # fmt: skip
    for step in range(1, len(digits)):
        count_kernel[programs](
            keys, found, counts, ties, *places,
            STEP=step, SHIFT=sum(digits[step + 1 :]), BITS=digits[step],
            BEFORE=2 ** digits[step - 1], LAST=step + 1 == len(digits), MOST=MOST, **even,
        )  # fmt: skip
    cut_kernel[(pools,)](
        keys, found, counts, ties, cuts, *places, rank,
        STEP=len(digits) - 1, BINS=2 ** digits[-1], MOST=MOST,
        TILES=min(TILES, triton.next_power_of_2(rank)), **even,
    )  # fmt: skip
    mark_kernel[programs](keys, cuts, kept, *places, **even)
    if protected is not None and scanning(scores) and bool((protected & ~kept).any()):
        shields = pooled(protected, scope).sum(-1)
        covers_protected(ratio, found[0, :, 1].view(shields.shape), shields)
    return kept


def laid_out(protected: Tensor, block: int) -> tuple[Tensor, int]:
    """Return a mask, and how long it is until it repeats: one that all rows share is not copied."""
    tokens = protected.shape[-1]
    if is_one_row(protected) and tokens % block == 0:
        return protected, tokens
    return protected.contiguous(), protected.numel()
