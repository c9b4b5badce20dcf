"""Eviction in two passes: count the kept entries of each block, then copy them by prefix sums.

Between the passes the launcher waits once for the total, which is the size of the output.
"""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from optimized import vector
from optimized._dispatch import gradient_fallback
from reference.evict import DenseCache, RaggedCache

BLOCK = 64
COUNTED = 64  # blocks that a program counts
CHANNELS = 128


@triton.jit(do_not_specialize=["tokens", "blocks"])
def count_kernel(kept, counts, tokens, blocks, BLOCK: tl.constexpr, COUNTED: tl.constexpr):
    """Write how many entries each block of a head keeps."""
    parts = tl.cdiv(blocks, COUNTED)
    head = (tl.program_id(0) // parts).to(tl.int64)
    block = tl.program_id(0) % parts * COUNTED + tl.arange(0, COUNTED)
    i = block.to(tl.int64)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    marked = tl.load(kept + head * tokens + i, mask=i < tokens, other=0) != 0
    here = counts + head * blocks + block
    tl.store(here, tl.sum(marked.to(tl.int32), 1).to(tl.int64), mask=block < blocks)


@triton.jit
def copy_rows(source, target, row, rank, marked, WIDTH: tl.constexpr, CHANNELS: tl.constexpr):
    """Scatter the marked rows to their places, some channels at a time."""
    for start in tl.static_range(0, WIDTH, CHANNELS):  # pyright: ignore[reportGeneralTypeIssues]
        d = start + tl.arange(0, CHANNELS)
        there = marked[:, None] & (d < WIDTH)[None, :]
        entry = tl.load(source + (row[:, None] * WIDTH + d[None, :]), mask=there)
        tl.store(target + (rank[:, None] * WIDTH + d[None, :]), entry, mask=there)


@triton.jit(do_not_specialize=["tokens", "blocks"])
def copy_kernel(
    keys, values, kept, ends, counts, left_keys, left_values, positions, tokens, blocks,
    WIDTH: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the kept entries of a block, after those of all blocks before it."""
    number = tl.program_id(0)
    start = number % blocks * BLOCK
    first = (number // blocks).to(tl.int64) * tokens + start
    i = tl.arange(0, BLOCK)
    marked = tl.load(kept + first + i, mask=i < tokens - start, other=0) != 0
    many = marked.to(tl.int32)
    rank = tl.cumsum(many, 0) - many
    before = tl.load(ends + number) - tl.load(counts + number)
    tl.store(positions + before + rank, (start + i).to(tl.int64), mask=marked)
    keys, left_keys = keys + first * WIDTH, left_keys + before * WIDTH
    copy_rows(keys, left_keys, i, rank, marked, WIDTH, CHANNELS)
    values, left_values = values + first * WIDTH, left_values + before * WIDTH
    copy_rows(values, left_values, i, rank, marked, WIDTH, CHANNELS)


@gradient_fallback(vector.evict)
def evict(keys: Tensor, values: Tensor, kept: Tensor) -> DenseCache | RaggedCache:
    if not keys.numel():
        return vector.evict(keys, values, kept)
    *heads, _, width = keys.shape
    kept = kept.contiguous()
    counts = kept_per_block(kept)
    many = counts.sum(-1)
    offsets = F.pad(many.cumsum(0), (1, 0))
    entries, fewest, most = torch.stack([offsets[-1], many.min(), many.max()]).tolist()
    left = gathered(keys, values, kept, counts, entries)
    if fewest < most:
        return RaggedCache(*left, offsets)
    shape = (*heads, most)
    return DenseCache(left[0].view(*shape, width), left[1].view(*shape, width), left[2].view(shape))


def kept_per_block(kept: Tensor) -> Tensor:
    """Return how many entries each block of each head keeps."""
    tokens = kept.shape[-1]
    heads, blocks = kept.numel() // tokens, triton.cdiv(tokens, BLOCK)
    counts = kept.new_empty((heads, blocks), dtype=torch.int64)
    count_kernel[(heads * triton.cdiv(blocks, COUNTED),)](
        kept, counts, tokens, blocks, BLOCK=BLOCK, COUNTED=COUNTED
    )
    return counts


def gathered(
    keys: Tensor, values: Tensor, kept: Tensor, counts: Tensor, entries: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the kept rows of all heads, and their positions."""
    width = keys.shape[-1]
    left_keys, left_values = keys.new_empty(entries, width), values.new_empty(entries, width)
    positions = counts.new_empty(entries)
    copy_kernel[(counts.numel(),)](
        keys.contiguous(), values.contiguous(), kept, counts.flatten().cumsum(0), counts,
        left_keys, left_values, positions, kept.shape[-1], counts.shape[-1],
        WIDTH=width, CHANNELS=min(CHANNELS, triton.next_power_of_2(width)), BLOCK=BLOCK,
    )  # fmt: skip
    return left_keys, left_values, positions
