"""The sparse correction that kept entries of a HEX cache add to attention over its codes.

A kept entry has code 0, which stands for the minimum of its group. Its difference from the minimum
is added, tile by tile, to the logits and to the output. Tables hold the entries of the static mask;
one lane handles a token of the keys or a channel of the values. Lanes with similar numbers of
entries run together. A token that is kept whole is read as a dense row.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from optimized._cached_tensors import cached_tensors
from optimized.hex_packed_layout import TILE
from optimized.kernels._numerics import widened
from optimized.vector.hex.stacked_cache import kept_by
from reference.hex.presets import HexConfig

ROOM = 128
"""The upper bound of a token's index in its tile, and of a channel's index in its head."""


class Tables(NamedTuple):
    """The entries that a static mask keeps, by tile and head.

    A lane has a pair of numbers: the index of its first entry, and `ROOM` times its number of
    entries plus its token in the tile or its channel.
    """

    counts: Tensor  # uint8 [tiles, heads, ROOM]: entries of each token
    tokens: Tensor  # int32 [tiles, heads, TILE, 2]: the pairs of tokens
    channels: Tensor  # uint8 [entries], token by token: the channel of each entry
    columns: Tensor  # int32 [tiles, heads, width, 2]: the pairs of channels
    places: Tensor  # int16 [entries], channel by channel: token of the tile + ROOM rank in token


@cached_tensors(16)
def tables(
    static: HexConfig, lengths: tuple[int, ...], heads: int, width: int, device: torch.device
) -> Tables:
    """Return the tables of spans of some lengths, one after the other: the same for all layers."""
    every = [tables_of_span(static, length, heads, width) for length in lengths]
    before = 0
    for i, span in enumerate(every):
        offset = torch.tensor([before, 0], dtype=torch.int32)
        every[i] = span._replace(tokens=span.tokens + offset, columns=span.columns + offset)
        before += len(span.channels)
    return Tables(*(torch.cat(parts).to(device) for parts in zip(*every, strict=True)))


def tables_of_span(static: HexConfig, length: int, heads: int, width: int) -> Tables:
    """Return the tables of a span."""
    kept = kept_by(static, length, heads, width, torch.device("cpu"))
    tiles = -(-length // TILE)
    beyond = (0, tiles * TILE - length)
    starts = (kept.counts.flatten().cumsum(0) - kept.counts.flatten()).view(heads, length)
    tokens = F.pad(kept.counts, beyond), F.pad(starts, beyond)
    tokens = [x.unflatten(-1, (tiles, TILE)).movedim(0, 1) for x in tokens]
    token, channel, rank = (x.long() for x in kept[1:])
    cell = token % length // TILE * heads * width + channel
    among = cell.bincount(minlength=tiles * heads * width).view(tiles, heads * width)
    columns = among.sum(0)
    before = F.pad(among.cumsum(0)[:-1], (0, 0, 1, 0)) + columns.cumsum(0) - columns
    return Tables(
        F.pad(tokens[0], (0, ROOM - TILE)).to(torch.uint8),
        lanes(*tokens),
        (channel[token.argsort(stable=True)] % width).to(torch.uint8),
        lanes(*(x.unflatten(-1, (heads, width)) for x in (among, before))),
        (token % length % TILE + ROOM * rank).to(torch.int16),
    )


def lanes(counts: Tensor, starts: Tensor) -> Tensor:
    """Return the pairs of lanes, sorted by their number of entries."""
    order = counts.argsort(dim=-1, stable=True)
    pairs = starts.gather(-1, order), order + ROOM * counts.gather(-1, order)
    return torch.stack(pairs, -1).to(torch.int32)


@triton.jit
def write_queries(queries, columns, turned, WIDTH: tl.constexpr, C: tl.constexpr):
    """Write queries channel by channel: a lane reads all columns of a channel at once."""
    g, c = tl.arange(0, C), tl.arange(0, WIDTH)
    q = tl.load(queries + g[None, :] * WIDTH + c[:, None], mask=(g < columns)[None, :], other=0.0)
    tl.store(turned + c[:, None] * C + g[None, :], widened(q))


@triton.jit
def write_entry_starts(begins, flags, counts, WIDTH: tl.constexpr):
    """Write the index i of each token's first entry in a tile, as -1 - i for a token kept whole."""
    t = tl.arange(0, 128)
    whole = tl.load(flags + t, mask=t < 96, other=0) != 0
    many = tl.where(whole, WIDTH, tl.load(counts + t).to(tl.int32))
    before = tl.cumsum(many, 0) - many
    tl.store(begins + t, tl.where(whole, -1 - before, before))


@triton.jit
def add_keys(
    bias, query, kept, minima, begins, tokens, channels, WIDTH: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write what the kept keys of a tile add to its logits, before scaling.

    The query values of a channel are at most 32 bytes, see `write_queries`: one lane reads them for
    its token.
    """
    g, t, c = tl.arange(0, C), tl.arange(0, 32), tl.arange(0, WIDTH)
    for part in tl.range(0, 3, num_stages=1):
        pair = tokens + (part * 32 + t) * 2
        start, many = tl.load(pair), tl.load(pair + 1)
        token = many & 127
        begin = tl.load(begins + token)
        whole = begin < 0
        many = tl.where(whole, 0, many >> 7)
        channel_at, kept_at = channels + start, kept + begin
        sums = tl.zeros([32, C], tl.float32)
        for k in tl.range(0, tl.max(many, 0), num_stages=1):
            ok = k < many
            channel = tl.load(channel_at, mask=ok, other=0).to(tl.int32)
            beyond = widened(tl.load(kept_at, mask=ok, other=0.0))
            channel_at += 1
            kept_at += 1
            beyond -= widened(tl.load(minima + channel, mask=ok, other=0.0))
            position = channel[:, None] * C + g[None, :]
            sums += tl.load(query + position) * beyond[:, None]
        tl.store(bias + token[:, None] * C + g[None, :], sums, mask=(~whole)[:, None])
        position = tl.min(tl.where(whole, token, 128), 0)
        while position < 128:
            row = kept + (-1 - tl.load(begins + position))
            beyond = widened(tl.load(row + c)) - widened(tl.load(minima + c))
            q = tl.load(query + c[:, None] * C + g[None, :])
            tl.store(bias + position * C + g, tl.sum(q * beyond[:, None], 0))
            position = tl.min(tl.where(whole & (token > position), token, 128), 0)


@triton.jit
def add_values(
    sums, powers, fades, kept, minima, begins, columns, places,
    WIDTH: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Rescale the running sums by `fades`, and add the contribution of a tile's kept values."""
    g, t, lane, c = tl.arange(0, C), tl.arange(0, 128), tl.arange(0, 32), tl.arange(0, WIDTH)
    whole = tl.load(begins + t) < 0
    every = sums + c[:, None] * C + g[None, :]
    before = tl.load(every) * tl.load(fades + g)[None, :]
    position = tl.min(tl.where(whole, t, 128), 0)
    while position < 128:
        beyond = widened(tl.load(kept + (-1 - tl.load(begins + position)) + c))
        beyond -= widened(tl.load(minima + position + 0 * c))
        p = tl.load(powers + position * C + g)
        before += p[None, :] * beyond[:, None]
        position = tl.min(tl.where(whole & (t > position), t, 128), 0)
    tl.store(every, before)
    tl.debug_barrier()
    for part in tl.range(0, WIDTH // 32, num_stages=1):
        pair = columns + (part * 32 + lane) * 2
        start, many = tl.load(pair), tl.load(pair + 1)
        channel = many & 127
        many = many >> 7
        place_at = places + start
        read = tl.zeros([32, C], tl.float32)
        for k in tl.range(0, tl.max(many, 0), num_stages=1):
            ok = k < many
            packed = tl.load(place_at, mask=ok, other=0).to(tl.int32)
            place_at += 1
            token = packed & 127
            begin = tl.load(begins + token, mask=ok, other=-1)
            ok = begin >= 0
            beyond = widened(tl.load(kept + begin + (packed >> 7), mask=ok, other=0.0))
            beyond -= widened(tl.load(minima + token, mask=ok, other=0.0))
            p = tl.load(powers + token[:, None] * C + g[None, :])
            read += p * beyond[:, None]
        out = sums + channel[:, None] * C + g[None, :]
        tl.store(out, tl.load(out) + read)
