"""Exact selection without a sort: radix selection of the last kept key, then a rank of its ties.

A program has a block of consecutive entries of a pool. Keys are integers that compare as the
scores do. Each kernel builds a histogram of the next digit over the keys that share the digits
found so far; the digit that completes the budget follows from its counts. Counters are integers, so
the order of programs does not change a result.
"""

from math import prod

import torch
import triton
import triton.language as tl
from torch import Tensor

from optimized import vector
from optimized._dispatch import gradient_fallback
from optimized.kernels._numerics import is_row_broadcast, padded
from reference.contract.enforce import may_read_values
from reference.contract.preconditions import AXES
from reference.retain import kept_count, pooled, require_budget_covers_protected

BLOCK = 4096
TILES = 1024  # counts that one program adds up at a time

INTEGERS = {
    torch.bfloat16: torch.int16,
    torch.float16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}
DIGITS = {2: (5, 6, 5), 4: (8,) * 4, 8: (8,) * 8}
"""Bits of each digit of a key, by the bytes of the key."""
MOST = 256  # values of a digit


@triton.jit
def place(tiles, pools):
    """Return the program's stretch, its tile there, its pool, and the tile's rank in the pool.

    Scores have the layout `[layers, pools, stretch]`, with one layer unless layers share pools.
    """
    stretch = tl.program_id(0) // tiles
    tile = tl.program_id(0) % tiles
    rank = stretch // pools * tiles + tile
    return stretch.to(tl.int64), tile.to(tl.int64), (stretch % pools).to(tl.int64), rank


@triton.jit
def block_of(stretch, tile, length, BLOCK: tl.constexpr):
    """Return the start of a block, the offsets of its entries, and the mask of existing ones."""
    start, i = tile * BLOCK, tl.arange(0, BLOCK)
    return stretch * length + start, i, i < tl.minimum(length - start, BLOCK).to(tl.int32)


@triton.jit
def padded_block(x, stretch, tile, length, BLOCK: tl.constexpr):
    """Return the places of a block where each stretch is padded, and the mask of those in memory.

    Keys are stored so: whatever the length of a stretch, accesses to them are aligned.
    """
    start, i, length = tile * BLOCK, tl.arange(0, BLOCK), padded(length)
    left = tl.minimum(length - start, BLOCK).to(tl.int32)
    return x + (stretch * length + start) + i, i < left


@triton.jit
def make_keys(bits, aside, SHIELDED: tl.constexpr):
    """Return unsigned keys, as wide as the scores, that compare as the scores do."""
    unsigned: tl.constexpr = tl.core.get_int_dtype(bits.dtype.primitive_bitwidth, False)
    most: tl.constexpr = 2 ** (bits.dtype.primitive_bitwidth - 1) - 1
    if bits.dtype.primitive_bitwidth == 16:
        bits = bits.to(tl.int32)
    # minus zero becomes zero
    bits = tl.where(bits < 0, -(bits & most), bits)
    if SHIELDED:
        # no score has the largest key, since plus infinity and NaN are refused
        bits = tl.where(aside, most, bits)
    if unsigned == tl.uint16:
        return (bits + 32768).to(unsigned)
    elif unsigned == tl.uint32:
        return bits.to(unsigned, bitcast=True) ^ 0x80000000
    else:
        return bits.to(unsigned, bitcast=True) ^ 0x8000000000000000


@triton.jit
def load_keys(keys, stretch, tile, length, BLOCK: tl.constexpr):
    """Return the keys of a block, as unsigned integers of at least 32 bits."""
    places, there = padded_block(keys, stretch, tile, length, BLOCK)
    key = tl.load(places, mask=there, other=0)
    key = key.to(tl.core.get_int_dtype(key.dtype.primitive_bitwidth, False), bitcast=True)
    return key.to(tl.uint32) if key.dtype == tl.uint16 else key


@triton.jit
def pick(found, counts, pool, BINS: tl.constexpr):
    """Return the digits found so far with one more, and how many keys that share them are kept.

    The new digit is the largest for which enough keys have that digit or a larger one.
    """
    before = tl.load(found + pool * 2)
    bins = tl.arange(0, BINS)
    count = tl.load(counts + bins)
    need = tl.load(found + pool * 2 + 1).to(count.dtype)
    digit = tl.maximum(tl.sum((tl.cumsum(count, 0, reverse=True) >= need).to(tl.int32), 0) - 1, 0)
    above = tl.sum(tl.where(bins > digit, count, 0), 0)
    return before * BINS + digit, need - above


@triton.jit
def counted(digit, match, counts, BINS: tl.constexpr):
    """Return the histogram of a block's digits, and add it to that of the pool."""
    count = tl.histogram(digit, BINS, mask=match)
    here = counts + tl.arange(0, BINS)
    tl.atomic_add(here, count.to(counts.dtype.element_ty), mask=count > 0, sem="relaxed")
    return count


@triton.jit(do_not_specialize=["length", "row", "tiles", "pools"])
def key_kernel(
    scores, protected, keys, counts, length, row, tiles, pools,
    SHIFT: tl.constexpr, BITS: tl.constexpr, MOST: tl.constexpr,
    SHIELDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the keys of a block, and count their first digits."""
    stretch, tile, pool, _ = place(tiles, pools)
    start, i, inside = block_of(stretch, tile, length, BLOCK)
    bits = tl.load(scores + start + i, mask=inside, other=0)
    aside = inside
    if SHIELDED:
        # a mask that all rows share is one row long
        aside = tl.load(protected + start % row + i, mask=inside, other=0) != 0
    key = make_keys(bits, aside, SHIELDED)
    places, there = padded_block(keys, stretch, tile, length, BLOCK)
    tl.store(places, key.to(bits.dtype, bitcast=True), mask=there)
    digit = (key >> SHIFT).to(tl.int32)
    counted(digit, inside, counts + pool * MOST, 2**BITS)


@triton.jit(do_not_specialize=["length", "tiles", "pools", "step", "shift"])
def count_kernel(
    keys, found, counts, ties, length, tiles, pools, step, shift,
    BITS: tl.constexpr, BEFORE: tl.constexpr, LAST: tl.constexpr, MOST: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Count the digits of a block's keys at a step after the first."""
    stretch, tile, pool, rank = place(tiles, pools)
    _, _, inside = block_of(stretch, tile, length, BLOCK)
    key = load_keys(keys, stretch, tile, length, BLOCK)
    before = found + (step - 1) * 2 * pools
    prefix, need = pick(before, counts + ((step - 1) * pools + pool) * MOST, pool, BEFORE)
    if rank == 0:
        tl.store(before + (pools + pool) * 2, prefix)
        tl.store(before + (pools + pool) * 2 + 1, need)
    match = inside & ((key >> (shift + BITS)) == prefix.to(key.dtype))
    BINS: tl.constexpr = 2**BITS
    digit = (key >> shift).to(tl.int32) & (BINS - 1)
    count = counted(digit, match, counts + (step * pools + pool) * MOST, BINS)
    if LAST:
        total = tl.num_programs(0) // pools
        tl.store(ties + (pool * total + rank) * BINS + tl.arange(0, BINS), count)


@triton.jit(do_not_specialize=["pools", "total"])
def cut_kernel(
    found, counts, ties, cuts, pools, total,
    STEP: tl.constexpr, BINS: tl.constexpr, MOST: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Write a pool's last key, the tile of the last kept tie, and how many ties that tile keeps."""
    pool = tl.program_id(0).to(tl.int64)
    last, need = pick(found + STEP * 2 * pools, counts + (STEP * pools + pool) * MOST, pool, BINS)
    ties += pool * total * BINS + (last & (BINS - 1))  # a last key of 64 bits may be negative
    # tiles that keep all of their ties
    whole, kept, seen = 0, need * 0, need * 0
    for first in range(0, total, TILES):
        rank = first + tl.arange(0, TILES)
        count = tl.load(ties + rank.to(tl.int64) * BINS, mask=rank < total, other=0).to(need.dtype)
        short = (rank < total) & (seen + tl.cumsum(count, 0) < need)
        whole += tl.sum(short.to(tl.int32), 0)
        kept += tl.sum(tl.where(short, count, 0), 0)
        seen += tl.sum(count, 0)
    tl.store(cuts + pool * 3, last)
    tl.store(cuts + pool * 3 + 1, whole.to(tl.int64))
    tl.store(cuts + pool * 3 + 2, need - kept)


@triton.jit
def cut_of(cuts, pool, rank, BLOCK: tl.constexpr):
    """Return a pool's last key, and how many of its ties a tile keeps."""
    whole = tl.load(cuts + pool * 3 + 1)
    room = tl.where(rank < whole, BLOCK, tl.where(rank > whole, 0, tl.load(cuts + pool * 3 + 2)))
    return tl.load(cuts + pool * 3), room.to(tl.int32)


@triton.jit(do_not_specialize=["length", "tiles", "pools"])
def mark_kernel(keys, cuts, kept, length, tiles, pools, BLOCK: tl.constexpr):
    """Write the mask of a block: all keys above the last one, and the first of its ties."""
    stretch, tile, pool, rank = place(tiles, pools)
    start, i, inside = block_of(stretch, tile, length, BLOCK)
    key = load_keys(keys, stretch, tile, length, BLOCK)
    last, room = cut_of(cuts, pool, rank, BLOCK)
    last = last.to(key.dtype)
    equal = ((key == last) & inside).to(tl.int32)
    marked = (key > last) | ((equal > 0) & (tl.cumsum(equal, 0) <= room))
    if length % 16 == 0:
        places, there = padded_block(kept, stretch, tile, length, BLOCK)
        tl.store(places, marked, mask=there)
    else:
        tl.store(kept + start + i, marked, mask=inside)


@gradient_fallback(vector.retain)
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
    tiles = triton.cdiv(length, BLOCK)
    programs, rank = (layers * pools * tiles,), layers * tiles
    bits = scores.contiguous().view(INTEGERS[scores.dtype])
    mask, row = (bits, 1) if protected is None else laid_out(protected.view(torch.uint8))
    digits = DIGITS[scores.itemsize]
    # before each step: the digits found of each pool, and how many keys with them are kept
    found = scores.new_zeros((len(digits), pools, 2), dtype=torch.int64)
    found[0, :, 1] = keep.flatten() if isinstance(keep, Tensor) else keep
    few = layers * length < 2**31
    counter = torch.int32 if few else torch.int64
    counts = scores.new_zeros((len(digits), pools, MOST), dtype=counter)
    ties = scores.new_empty((pools * rank, 2 ** digits[-1]), dtype=torch.int32)
    cuts = scores.new_empty((pools, 3), dtype=torch.int64)
    keys = bits.new_empty(layers * pools, triton.cdiv(length, 16) * 16)
    for step, width in enumerate(digits):
        shift, shape = sum(digits[step + 1 :]), dict(BITS=width, MOST=MOST, BLOCK=BLOCK)
        if step == 0:
            key_kernel[programs](
                bits, mask, keys, counts, length, row, tiles, pools,
                SHIFT=shift, SHIELDED=protected is not None, **shape,
            )  # fmt: skip
        else:
            count_kernel[programs](
                keys, found, counts, ties, length, tiles, pools, step, shift,
                BEFORE=2 ** digits[step - 1], LAST=step + 1 == len(digits), **shape,
            )  # fmt: skip
    cut_kernel[(pools,)](
        found, counts, ties, cuts, pools, rank,
        STEP=len(digits) - 1, BINS=2 ** digits[-1], MOST=MOST, TILES=TILES,
    )  # fmt: skip
    mark_kernel[programs](keys, cuts, kept, length, tiles, pools, BLOCK=BLOCK)
    if protected is not None and may_read_values(scores) and bool((protected & ~kept).any()):
        shields = pooled(protected, scope).sum(-1)
        require_budget_covers_protected(ratio, found[0, :, 1].view(shields.shape), shields)
    return kept


def laid_out(protected: Tensor) -> tuple[Tensor, int]:
    """Return a mask and the length after which it repeats; one shared by all rows is not copied."""
    tokens = protected.shape[-1]
    if is_row_broadcast(protected) and tokens % BLOCK == 0:
        return protected[(0,) * (protected.dim() - 1)], tokens
    return protected.contiguous(), protected.numel()
