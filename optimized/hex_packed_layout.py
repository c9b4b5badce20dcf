"""The memory layout of a HEX cache that kernels read, bit by bit.

A span is cut into tiles of 96 tokens; the last tile is padded with code 0. A tile of one head of
`width` channels is `96 * width * bits` bits without a gap. A word of 32 bits is two halves, the low
one first. A half holds one code of each of several groups, and one mask extracts a code.

With two, four or eight bits, a half has `16 / bits` fields, field i at bit `bits * i`. A group has
`w = width * bits / 16` channels.

- keys `[96, w / 2]`: row t, word j, half h, field i is token t, channel `w i + 2 j + h`;
- values `[48, w]`: row r, word j, half h, field i is token `2 r + h`, channel `w i + j`.

With three bits, a tile has three planes. A half of a plane has five fields, field f at bit `3 f`;
they hold groups 0 to 14. Bit 15 of a half in plane p is bit p of group 15. A group has 16 channels.
A row has `256 / width` tokens, which are `rows = 96 * width / 256` apart. Group
`u = width / 16 * k + v` of row t has the 16 channels from `16 v` on of token `t + rows * k`.

- keys `[3, rows, 8]`: row t, word j, half h is token t, channel `2 j + h` of the group;
- values `[3, rows / 2, 16]`: row r, word j, half h is token `2 r + h`, channel j of the group.

Everything else is stored as in the specification. A table holds the index of the first kept entry
of each tile.

Later blocks are appended into memory that is allocated ahead. Written memory never changes.
"""

from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from optimized.vector.hex.packing import pack_bits, unpack_bits
from optimized.vector.hex.stacked_cache import kept_by, mask_settings, shared_properties
from reference.hex.cache import HexCache
from reference.hex.compress import HexBlock

TILE = 96
"""Tokens of a tile."""

AHEAD = 8
"""Allocated memory has room for `1 + spans // AHEAD` more spans than are written."""


STACKED = (
    "key_words", "key_steps", "key_minima", "value_words", "value_steps", "value_minima", "dynamic",
    "begins",
)  # fmt: skip
"""The fields of a `PackedSpans` whose first axis counts spans."""

KEPT = ("kept_keys", "kept_values")
"""The fields of a `PackedSpans` whose first axis counts kept entries."""


class PackedSpans(NamedTuple):
    """Spans of one length, stacked along the first axis; `rows` is all batch axes flattened."""

    bits: int
    length: int  # tokens of a span
    key_words: Tensor  # int32 [spans, rows, heads, tiles, words]
    key_steps: Tensor  # [spans, rows, heads, width]
    key_minima: Tensor
    value_words: Tensor  # int32 [spans, rows, heads, tiles, words]
    value_steps: Tensor  # [spans, rows, length] or [spans, rows, heads, length]
    value_minima: Tensor
    kept_keys: Tensor  # [entries], span after span
    kept_values: Tensor
    entries: tuple[int, ...]  # kept entries of each span
    dynamic: Tensor  # bool [spans, rows, length]
    begins: Tensor  # int64 [spans, rows, heads, tiles]: the first entry of each tile
    memory: "Memory | None" = None  # the allocation that these tensors are views of

    @property
    def tiles(self) -> int:
        """Tiles of a span."""
        return self.key_words.shape[3]

    def goes_on(self, other: "PackedSpans") -> bool:
        """Whether the spans of another run can be appended to these."""
        mine, theirs = (
            (run.bits, run.length, run.value_steps.ndim, run.key_steps.dtype)
            for run in (self, other)
        )
        return mine == theirs

    def followed(self, other: "PackedSpans") -> "PackedSpans":
        """Return a run of these spans, then those of another run."""
        spans, kept = len(self.entries), sum(self.entries)
        more = spans + len(other.entries), kept + sum(other.entries)
        memory = self.memory
        if memory is None or not memory.is_free(spans, kept, *more):
            memory = Memory(self, *more)
        memory.write(other)
        return memory.run()._replace(entries=self.entries + other.entries)


class Memory:
    """Memory for the spans of a run, and for some more.

    Several caches may share the first spans. A cache that holds every written span may append in
    place. A cache that holds fewer, because another one has appended, must copy its spans first.
    """

    def __init__(self, run: PackedSpans, spans: int, entries: int) -> None:
        self.spans, self.entries = 0, 0
        ahead = 1 + spans // AHEAD
        room: dict[str, int] = dict.fromkeys(STACKED, spans + ahead)
        room |= dict.fromkeys(KEPT, entries + -(-entries // spans) * ahead)
        parts = {name: getattr(run, name) for name in room}
        empty = {name: x.new_empty(room[name], *x.shape[1:]) for name, x in parts.items()}
        self.whole = run._replace(entries=(), memory=None, **empty)
        self.write(run)

    def is_free(self, spans: int, entries: int, more_spans: int, more_entries: int) -> bool:
        """Whether a run of these sizes holds all that is written, and the larger one fits."""
        enough = more_spans <= len(self.whole.dynamic) and more_entries <= len(self.whole.kept_keys)
        return enough and (spans, entries) == (self.spans, self.entries)

    def write(self, run: PackedSpans) -> None:
        """Append the spans of a run."""
        for name in STACKED:
            part = getattr(run, name)
            part = part + self.entries if name == "begins" else part
            getattr(self.whole, name)[self.spans : self.spans + len(part)] = part
        for name in KEPT:
            part = getattr(run, name)
            getattr(self.whole, name)[self.entries : self.entries + len(part)] = part
        self.spans += len(run.entries)
        self.entries += sum(run.entries)

    def run(self) -> PackedSpans:
        """Return all written spans as views of this memory."""
        parts = {name: getattr(self.whole, name)[: self.spans] for name in STACKED}
        parts |= {name: getattr(self.whole, name)[: self.entries] for name in KEPT}
        return self.whole._replace(memory=self, **parts)


class PackedCache(NamedTuple):
    """A HEX cache in the layout of the kernels."""

    runs: tuple[PackedSpans, ...]
    rest: HexCache  # the cache without its blocks

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return sum(len(run.entries) for run in self.runs)

    def followed(self, block: HexBlock, rest: HexCache) -> "PackedCache":
        """Return the cache with one more block and a new rest."""
        new = run([block], rest)
        if self.runs and self.runs[-1].goes_on(new):
            return PackedCache((*self.runs[:-1], self.runs[-1].followed(new)), rest)
        return PackedCache((*self.runs, new), rest)

    @classmethod
    def of(cls, cache: HexCache) -> "PackedCache":
        """Return a cache in the layout of the kernels."""
        runs = (run(list(some), cache) for _, some in groupby(cache.blocks, shared_properties))
        return cls(tuple(runs), cache._replace(blocks=()))

    def cache(self) -> HexCache:
        """Return the cache as the specification stores it, bit for bit."""
        batch = self.rest.residual_mass.shape[:-1]
        return self.rest._replace(blocks=tuple(b for one in self.runs for b in blocks(one, batch)))


@lru_cache(maxsize=32)
def places(bits: int, width: int, kind: str, device: torch.device) -> Tensor:
    """Return the position of each bit of each code of a tile, `[96, width, bits]`: 32 word + bit.

    It is computed on the CPU and copied: a result that a GPU computes during the capture of a CUDA
    graph exists only once the graph is replayed.
    """
    token = torch.arange(TILE)[:, None, None]
    channel = torch.arange(width)[:, None]
    bit = torch.arange(bits)
    if bits == 3:
        rows = TILE * width // 256
        group = width // 16 * (token // rows) + channel // 16
        row, within = token % rows, channel % 16
        plane = torch.where(group < 15, group // 5, bit)
        place = torch.where(group < 15, 3 * (group % 5) + bit, 15)
        if kind == "keys":
            word, half = (plane * rows + row) * 8 + within // 2, within % 2
        else:
            word, half = (plane * (rows // 2) + row // 2) * 16 + within, row % 2
    else:
        group = width * bits // 16
        place, within = bits * (channel // group) + bit, channel % group
        if kind == "keys":
            word, half = token * (group // 2) + within // 2, within % 2
        else:
            word, half = token // 2 * group + within, token % 2
    return (32 * word + 16 * half + place).to(device)


def laid(codes: Tensor, bits: int, kind: str) -> Tensor:
    """Return codes, `[..., tokens, width]`, as the words of tiles, `[..., tiles, words]`."""
    tokens, width = codes.shape[-2:]
    tiles = F.pad(codes, (0, 0, 0, -tokens % TILE)).unflatten(-2, (-1, TILE))
    where = places(bits, width, kind, codes.device)
    ones = tiles[..., None] >> torch.arange(bits, device=codes.device, dtype=torch.uint8) & 1
    stream = torch.empty_like(ones.flatten(-3))
    stream[..., where.flatten()] = ones.flatten(-3)
    return pack_bits(stream, 1)


def lifted(words: Tensor, bits: int, width: int, kind: str, tokens: int) -> Tensor:
    """Return the codes, `[..., tokens, width]`, that the words of tiles hold."""
    where = places(bits, width, kind, words.device)
    stream = unpack_bits(words, 1, 32 * words.shape[-1])[..., where.flatten()]
    worth = torch.arange(bits, device=words.device, dtype=torch.uint8)
    codes = (stream.unflatten(-1, where.shape) << worth).sum(-1, dtype=torch.uint8)
    return codes.flatten(-3, -2)[..., :tokens, :]


def tile_entry_starts(dynamic: Tensor, counts: Tensor, width: int) -> Tensor:
    """Return the index of the first kept entry of each tile.

    Args:
        dynamic: the tokens that are kept whole.
        counts: the entries that the static mask keeps of each token and head.
        width: the channels of a head.
    """
    sizes = torch.where(dynamic[:, :, None], width, counts.to(dynamic.device))
    sizes = F.pad(sizes, (0, -sizes.shape[-1] % TILE)).unflatten(-1, (-1, TILE)).sum(-1)
    return (sizes.flatten().cumsum(0) - sizes.flatten()).view(sizes.shape)


def run(some: list[HexBlock], cache: HexCache) -> PackedSpans:
    """Return blocks of one length as a run in the layout of the kernels."""
    first, batch = some[0], some[0].dynamic.ndim - 1
    rows = cache.residual_mass.shape[:-1].numel()
    bits, length = first.bits, first.dynamic.shape[-1]

    def stacked(name: str) -> Tensor:
        parts = [getattr(block, name) for block in some]
        return torch.stack(parts).reshape(len(some), rows, *parts[0].shape[batch:])

    def words(kind: str) -> Tensor:
        return laid(unpack_bits(stacked(f"{kind[:-1]}_words"), bits, length).mT, bits, kind)

    mask, dynamic = mask_settings(cache.config), stacked("dynamic")
    heads, width = first.key_steps.shape[-2:]
    counts = kept_by(mask, length, heads, width, torch.device("cpu")).counts
    return PackedSpans(
        bits, length,
        words("keys"), stacked("key_steps"), stacked("key_minima"),
        words("values"), stacked("value_steps"), stacked("value_minima"),
        torch.cat([block.kept_keys for block in some]),
        torch.cat([block.kept_values for block in some]),
        tuple(block.kept_keys.numel() for block in some),
        dynamic, tile_entry_starts(dynamic, counts, width),
    )  # fmt: skip


def blocks(one: PackedSpans, batch: torch.Size) -> list[HexBlock]:
    """Return the blocks of a run, with their batch axes."""
    width = one.key_steps.shape[-1]

    def stream(words: Tensor, kind: str) -> Tensor:
        codes = lifted(words, one.bits, width, kind, one.length)
        return pack_bits(codes.mT.contiguous(), one.bits)

    kept = one.kept_keys.split(one.entries), one.kept_values.split(one.entries)
    parts = (
        stream(one.key_words, "keys"), one.key_steps, one.key_minima,
        stream(one.value_words, "values"), one.value_steps, one.value_minima,
    )  # fmt: skip
    found = []
    for i in range(len(one.entries)):
        stored = [x[i].reshape(*batch, *x.shape[2:]) for x in parts]
        entries = [x[i].clone() for x in kept]
        dynamic = one.dynamic[i].reshape(*batch, one.length)
        found.append(HexBlock(one.bits, *[*stored, *entries, dynamic]))
    return found
