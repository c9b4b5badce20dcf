"""What kept entries of a HEX cache add to attention over its codes, whatever the mask.

Under a kept entry lies code 0, the minimum of its group: what it has beyond the minimum is added,
by a kernel before the codes to the logits, by one after them to what is read. The static mask's
entries of a token are looked up in tables; a token that is kept whole is read as it lies.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from optimized.kernels._device import widened
from optimized.layout import TILE, Run
from optimized.vector.hex.attention import INDEX, kept_by
from reference.hex.presets import HexConfig


class Tables(NamedTuple):
    """Where a static mask keeps entries.

    How many of each token of a head, and from where on among their channels of that head; how many
    of each channel in a tile, and from where on among their tokens and ranks.
    """

    counts: Tensor
    starts: Tensor
    channels: Tensor
    tile_counts: Tensor
    tile_starts: Tensor
    tokens: Tensor
    ranks: Tensor


@lru_cache(maxsize=64)
def tables(static: HexConfig, length: int, heads: int, width: int, device: torch.device) -> Tables:
    """Find the entries of a span: the same for all layers, rows and spans."""
    kept = kept_by(static, length, heads, width, torch.device("cpu"))
    tile, tiles = kept.by_channel.of_head // TILE, -(-length // TILE)
    place = tile * heads * width + kept.by_channel.channels
    among = place.bincount(minlength=tiles * heads * width).view(tiles, heads * width)
    before = F.pad(among.cumsum(0)[:-1], (0, 0, 1, 0)) + kept.by_channel.starts
    found = (
        kept.counts.contiguous(), kept.by_token.starts, kept.by_token.channels % width,
        among, before, kept.by_channel.of_head, kept.by_channel.rank,
    )  # fmt: skip
    return Tables(*(table.to(device, torch.int32) for table in found))


def begins(run: Run, counts: Tensor) -> Tensor:
    """Return where the entries of each token of each head begin."""
    width = run.key_steps.shape[-1]
    sizes = torch.where(run.dynamic[:, :, None], width, counts).flatten()
    few = run.kept_keys.numel() < 2**31
    return sizes.cumsum(0, dtype=INDEX if few else torch.int64) - sizes


@triton.jit
def logits_kernel(
    query, near, rest, tops, kept, key_minima, dynamic, first, counts, starts, columns, bias,
    count, tiles, rows, heads, parts, length,
    WIDTH: tl.constexpr, C: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Write what the kept keys of a tile add to its logits.

    A query's row is 16 bytes of half precision, `near`, so that one lane reads it for its token;
    with EXACT, what that leaves out is the `rest`.
    """
    tile, head = tl.program_id(1), tl.program_id(0) // parts
    span, row = tile // tiles, head // heads
    within, h = tile - span * tiles, head - row * heads
    pid, span = tl.program_id(0).to(tl.int64), span.to(tl.int64)
    g, t, c = tl.arange(0, C), tl.arange(0, 32), tl.arange(0, WIDTH)
    group = span * rows * heads + head
    flags = dynamic + (span * rows + row) * length
    first += group * length
    counts += h * length
    starts += h * length
    query += pid * WIDTH * C
    near += pid * WIDTH * C
    rest += pid * WIDTH * C
    minima = key_minima + group * WIDTH
    here = bias + ((pid * count + tile) * 96 - within * 96) * C
    scale = tl.load(tops + pid * C + g)
    for part in range(3):
        token = within * 96 + part * 32 + t
        there = token < length
        whole = there & (tl.load(flags + token, mask=there, other=0) != 0)
        begin = tl.load(first + token, mask=there, other=0)
        many = tl.load(counts + token, mask=there & ~whole, other=0)
        start = tl.load(starts + token, mask=there, other=0)
        sums = tl.zeros([32, C], tl.float32)
        for k in range(0, tl.max(many, 0)):
            ok = k < many
            channel = tl.load(columns + start + k, mask=ok, other=0)
            beyond = widened(tl.load(kept + begin + k, mask=ok, other=0.0))
            beyond -= widened(tl.load(minima + channel, mask=ok, other=0.0))
            at = channel[:, None] * C + g[None, :]
            q = tl.load(near + at).to(tl.float32)
            if EXACT:
                q += tl.load(rest + at).to(tl.float32)
            sums += q * beyond[:, None]
        out = here + token[:, None] * C + g[None, :]
        tl.store(out, sums * scale[None, :], mask=(~whole)[:, None])
        at = tl.min(tl.where(whole, token, length), 0)
        while at < length:
            q = tl.load(query + c[:, None] * C + g[None, :])
            beyond = widened(tl.load(kept + tl.load(first + at) + c)) - widened(tl.load(minima + c))
            tl.store(here + at * C + g, tl.sum(q * beyond[:, None], 0) * scale)
            at = tl.min(tl.where(whole & (token > at), token, length), 0)


@triton.jit
def reading_kernel(
    logits, norms, kept, value_minima, dynamic, begins, tile_counts, tile_starts, tokens, ranks,
    found, count, share, tiles, rows, heads, parts, value_heads, length, splits, first,
    WIDTH: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Add what the kept values of some tiles add to what was read of them."""
    head = tl.program_id(0) // parts
    row = head // heads
    h = head - row * heads
    pid, value_row = tl.program_id(0).to(tl.int64), row * value_heads + h % value_heads
    g, t, c = tl.arange(0, C), tl.arange(0, 128), tl.arange(0, WIDTH)
    place = pid * splits + first + tl.program_id(1)
    norm = tl.load(norms + place * C + g)
    sums = tl.zeros([WIDTH, C], tl.float32)
    start = tl.program_id(1) * share
    for tile in range(start, tl.minimum(start + share, count)):
        span, within = tile // tiles, tile % tiles
        mine = begins + (span.to(tl.int64) * rows * heads + head) * length
        low = value_minima + (span.to(tl.int64) * rows * value_heads + value_row) * length
        flags = dynamic + (span.to(tl.int64) * rows + row) * length
        here = logits + ((pid * count + tile) * 96 - within * 96) * C
        many = tl.load(tile_counts + (within * heads + h) * WIDTH + c)
        from_ = tl.load(tile_starts + (within * heads + h) * WIDTH + c)
        for k in range(0, tl.max(many, 0)):
            ok = k < many
            token = tl.load(tokens + from_ + k, mask=ok, other=0)
            ok &= tl.load(flags + token, mask=ok, other=1) == 0
            entry = tl.load(mine + token, mask=ok, other=0)
            entry += tl.load(ranks + from_ + k, mask=ok, other=0)
            beyond = widened(tl.load(kept + entry, mask=ok, other=0.0))
            beyond -= widened(tl.load(low + token, mask=ok, other=0.0))
            at = here + token[:, None] * C + g[None, :]
            s = tl.load(at, mask=ok[:, None], other=-float("inf"))
            sums += tl.exp2(s - norm[None, :]) * beyond[:, None]
        token = within * 96 + t
        there = (t < 96) & (token < length)
        whole = there & (tl.load(flags + token, mask=there, other=0) != 0)
        at = tl.min(tl.where(whole, t, 128), 0)
        while at < 96:
            token_at = within * 96 + at
            beyond = widened(tl.load(kept + tl.load(mine + token_at) + c))
            beyond -= widened(tl.load(low + token_at + tl.zeros([WIDTH], tl.int32)))
            p = tl.exp2(tl.load(here + token_at * C + g) - norm)
            sums += beyond[:, None] * p[None, :]
            at = tl.min(tl.where(whole & (t > at), t, 128), 0)
    out = found + place * C * WIDTH + g[None, :] * WIDTH + c[:, None]
    tl.store(out, tl.load(out) + sums)
