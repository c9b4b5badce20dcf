"""The memory layout of a HEX cache that kernels read, bit by bit.

A span is cut into tiles of 96 tokens; the last tile is padded with code 0. A tile of one head of
`width` channels is `96 * width * bits` bits without a gap. A word of 32 bits is two halves, the low
one first. A half holds one code of each of several groups, and one mask extracts a code.

With one, two, four or eight bits, a half has `16 / bits` fields, field i at bit `bits * i`. A group
has `w = width * bits / 16` channels, which must be an even number.

- keys `[96, w / 2]`: row t, word j, half h, field i is token t, channel `w i + 2 j + h`;
- values `[48, w]`: row r, word j, half h, field i is token `2 r + h`, channel `w i + j`.

With three bits, a tile has three planes. A half of a plane has five fields, field f at bit `3 f`;
they hold groups 0 to 14. Bit 15 of a half in plane p is bit p of group 15. A group has 16 channels.
A row has `256 / width` tokens, a whole number of at most 16, which are `rows = 96 * width / 256`
apart. Group `u = width / 16 * k + v` of row t has the 16 channels from `16 v` on of token
`t + rows * k`.

- keys `[3, rows, 8]`: row t, word j, half h is token t, channel `2 j + h` of the group;
- values `[3, rows / 2, 16]`: row r, word j, half h is token `2 r + h`, channel j of the group.

Everything else is stored as in the specification, tile by tile. Values have a step and a minimum
for every token of a whole tile; those of padding are 0. Tiles of all spans lie one after the other,
in the order of the tokens. A table holds, for each tile, its span, its number of tokens, its row of
the tables of static masks, and its first token; another one the index of its first kept entry.

Later blocks are appended into memory that is allocated ahead. Written memory never changes, but for
the residual buffer of a cache with `Room`: see there.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from optimized._cached_tensors import cached_tensors
from optimized.vector.hex.packing import pack_bits, unpack_bits
from optimized.vector.hex.stacked_cache import kept_by, mask_settings, shared_properties
from reference.contract.types import BothBits
from reference.hex.cache import HexCache, carried_tokens
from reference.hex.compress import HexBlock
from reference.hex.kcvt import bits_of_both
from reference.hex.presets import HexConfig

TILE = 96
"""Tokens of a tile."""

AHEAD = 8
"""Allocated memory has room for `1 + count // AHEAD` more spans, each of the last one's size."""

BY_SPAN = ("key_steps", "key_minima")
BY_TILE = ("key_words", "value_words", "value_steps", "value_minima", "dynamic", "tiles", "begins")
BY_ENTRY = ("kept_keys", "kept_values")
COUNTED = (BY_SPAN, BY_TILE, BY_ENTRY)
"""The tensors of `PackedSpans` whose first axis counts spans, tiles and kept entries."""


RESIDUAL = ("residual_keys", "residual_values", "residual_mass", "mass")
"""The tensors of a `HexCache` that a `Room` holds."""


class PackedSpans(NamedTuple):
    """Spans of any lengths; `rows` is all batch axes flattened."""

    bits: int
    key_words: Tensor  # int32 [tiles, rows, heads, words]
    key_steps: Tensor  # [spans, rows, heads, width]
    key_minima: Tensor
    value_words: Tensor  # int32 [tiles, rows, heads, words]
    value_steps: Tensor  # [tiles, rows, 96] or [tiles, rows, heads, 96]
    value_minima: Tensor
    reach: Tensor  # float32 [rows] or [rows, heads]: the largest step of values
    kept_keys: Tensor  # [entries], span after span
    kept_values: Tensor
    dynamic: Tensor  # bool [tiles, rows, 96]
    tiles: Tensor  # int64 [tiles, 4]: span, tokens, row of the tables of static masks, first token
    begins: Tensor  # int64 [tiles, rows, heads]: the first kept entry
    lengths: tuple[int, ...]  # tokens of each span
    entries: tuple[int, ...]  # kept entries of each span
    counts: tuple[int, ...]  # spans, tiles and kept entries
    kinds: tuple[int, ...]  # the lengths that occur, in the order of first occurrence
    memory: "Memory | None" = None  # the allocation that these tensors are views of

    def followed(self, block: HexBlock, config: HexConfig) -> "PackedSpans":
        """Return these spans, then a block."""
        new = laid_out([block], config, self.lengths, self.counts[2])
        both = tuple(map(sum, zip(self.counts, new.counts, strict=True)))
        memory = self.memory
        if memory is None or not memory.fits(self.counts, both):
            memory = Memory(self, new.counts)
        memory.write(new)
        return memory.spans()._replace(
            reach=torch.maximum(self.reach, new.reach),
            lengths=self.lengths + new.lengths,
            entries=self.entries + new.entries,
            counts=both,
            kinds=tuple(dict.fromkeys(self.kinds + new.kinds)),
        )


class Memory:
    """Memory for some spans, and for some more of the size of the next one.

    Several caches may share the first spans. A cache that holds every written span may append in
    place. A cache that holds fewer, because another one has appended, must copy its spans first.
    """

    def __init__(self, spans: PackedSpans, following: tuple[int, ...]) -> None:
        self.written = [0, 0, 0]
        ahead = 2 + len(spans.lengths) // AHEAD
        empty = {}
        with torch.inference_mode(False):  # whose tensors only that mode may write
            for names, count, new in zip(COUNTED, spans.counts, following, strict=True):
                parts = {name: getattr(spans, name) for name in names}
                size = count + ahead * new
                empty |= {name: x.new_empty(size, *x.shape[1:]) for name, x in parts.items()}
        self.whole = spans._replace(memory=None, **empty)
        self.write(spans)

    def fits(self, counts: tuple[int, ...], larger: tuple[int, ...]) -> bool:
        """Whether `counts` is all that is written, and `larger` counts fit."""
        room = (len(getattr(self.whole, names[0])) for names in COUNTED)
        enough = all(count <= most for count, most in zip(larger, room, strict=True))
        return enough and [*counts] == self.written

    def write(self, spans: PackedSpans) -> None:
        """Append spans."""
        for i, (names, count) in enumerate(zip(COUNTED, spans.counts, strict=True)):
            start, stop = self.written[i], self.written[i] + count
            for name in names:
                getattr(self.whole, name)[start:stop] = getattr(spans, name)
            self.written[i] = stop

    def spans(self) -> PackedSpans:
        """Return all written spans as views of this memory."""
        parts = {
            name: getattr(self.whole, name)[:count]
            for names, count in zip(COUNTED, self.written, strict=True)
            for name in names
        }
        return self.whole._replace(memory=self, **parts)


class Room(NamedTuple):
    """Memory of a fixed size for a residual buffer, which decoding writes in place.

    The tensors of a cache's residual buffer are views of it. A step changes the mass of the cache
    that it is given, and writes behind its last token: only the newest cache may go on, and a copy
    has to leave the room first: `PackedCache.settled`.
    """

    keys: Tensor  # [rows, heads, room, width]
    values: Tensor
    mass: Tensor  # float32 [rows, remembered + room]; the first ones are those of compressed tokens
    filled: Tensor  # int64 [1]: tokens in the residual buffer, where kernels read it
    newest: list[int]  # the number of the last change, on the host

    @classmethod
    def of(cls, rest: HexCache) -> "Room":
        """Return room for a residual buffer until it is full, without its tokens."""
        keys, mass = rest.residual_keys, rest.residual_mass
        rows, (heads, _, width) = mass.shape[:-1].numel(), keys.shape[-3:]
        size = rest.config.block + carried_tokens(rest.config)
        with torch.inference_mode(False):  # whose tensors only that mode may write
            return cls(
                keys.new_empty(rows, heads, size, width),
                keys.new_empty(rows, heads, size, width),
                mass.new_empty(rows, rest.mass.shape[-1] + size),
                torch.empty(1, dtype=torch.int64, device=keys.device),
                [0],
            )

    def fits(self, rest: HexCache) -> bool:
        """Whether the room also has the right size for the mass of compressed tokens."""
        return self.mass.shape[-1] - self.keys.shape[-2] == rest.mass.shape[-1]

    def fill(self, rest: HexCache) -> None:
        """Write a residual buffer, and no mass behind it."""
        now = self.rest(rest, rest.residual_keys.shape[-2])
        self.mass[:, rest.mass.shape[-1] + rest.residual_mass.shape[-1] :] = 0
        for name in RESIDUAL:
            getattr(now, name).copy_(getattr(rest, name))
        self.filled.fill_(rest.residual_keys.shape[-2])

    def rest(self, rest: HexCache, tokens: int) -> HexCache:
        """Return a cache whose residual buffer is the first `tokens` of this room."""
        batch, remembered = rest.residual_mass.shape[:-1], rest.mass.shape[-1]
        keys, values, mass = (x.view(*batch, *x.shape[1:]) for x in self[:3])
        return rest._replace(
            residual_keys=keys[..., :tokens, :],
            residual_values=values[..., :tokens, :],
            residual_mass=mass[..., remembered : remembered + tokens],
            mass=mass[..., :remembered],
        )


class PackedCache(NamedTuple):
    """A HEX cache in the layout of the kernels."""

    spans: PackedSpans
    rest: HexCache  # the cache without its blocks
    room: Room | None = None  # the memory of its residual buffer, once it decodes
    change: int = 0  # the number of the change of the room that made this cache

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return len(self.spans.lengths)

    def followed(self, block: HexBlock, rest: HexCache) -> "PackedCache":
        """Return the cache with one more block and a new rest."""
        return PackedCache(self.spans.followed(block, rest.config), rest)

    def in_room(self, room: Room | None = None) -> "PackedCache":
        """Return the cache with its residual buffer copied into memory of a fixed size.

        The memory is new, or a `room` that is given up: the caches in it are refused from now on.
        """
        self.require_newest()
        if room is None or not room.fits(self.rest):
            room = Room.of(self.rest)
        room.fill(self.rest)
        return self.changed(room, self.held)

    def grown(self) -> "PackedCache":
        """Return the cache after a token was written into its room."""
        assert self.room is not None
        self.require_newest()
        return self.changed(self.room, self.held + 1)

    def changed(self, room: Room, tokens: int) -> "PackedCache":
        """Return the cache with the first `tokens` of a room, as the only one that may go on."""
        room.newest[0] += 1
        return PackedCache(self.spans, room.rest(self.rest, tokens), room, room.newest[0])

    def require_newest(self) -> None:
        """Refuse a cache whose room has changed since.

        Raises:
            ValueError: the cache is not the newest.
        """
        if self.room is not None and self.room.newest != [self.change]:
            raise ValueError(
                f"cache must be the newest in its memory, of change {self.room.newest[0]}, got "
                f"that of change {self.change}: a step writes in place; `settled` copies before"
            )

    def settled(self) -> "PackedCache":
        """Return the cache with a residual buffer of its own, which no step of another changes."""
        self.require_newest()
        if self.room is None:
            return self
        own = {name: getattr(self.rest, name).clone() for name in RESIDUAL}
        return PackedCache(self.spans, self.rest._replace(**own))

    @property
    def held(self) -> int:
        """Tokens in the residual buffer."""
        return self.rest.residual_keys.shape[-2]

    @classmethod
    def of(cls, cache: HexCache) -> "PackedCache":
        """Return a cache in the layout of the kernels.

        Raises:
            ValueError: the cache has no block, or blocks that are not alike, or bits and channels
                that do not fill words.
        """
        if not alike(cache.blocks):
            count = len(cache.blocks)
            raise ValueError(
                "cache must have at least one block, and all of one number of bits, value group "
                f"and type, got {count} block{'s' * (count != 1)}"
            )
        bits, width = cache.blocks[0].bits, cache.residual_keys.shape[-1]
        if not fills_words(bits, width):
            raise ValueError(
                "cache must have codes of 1, 2, 4 or 8 bits and a multiple of 32 / bits channels, "
                f"or of 3 bits and 16, 32, 64, 128 or 256, got {bits} bits and {width} channels"
            )
        return cls(laid_out(cache.blocks, cache.config), cache._replace(blocks=()))

    def cache(self) -> HexCache:
        """Return the cache as the specification stores it, bit for bit."""
        rest = self.settled().rest
        return rest._replace(blocks=tuple(blocks(self.spans, rest.residual_mass.shape[:-1])))


def tiles_of(length: int) -> int:
    """Return the number of tiles of a span."""
    return -(-length // TILE)


def alike(blocks: tuple[HexBlock, ...]) -> bool:
    """Whether blocks can lie in one `PackedSpans`: they differ at most in their lengths."""
    kinds = {(bits, by_head, dtype) for bits, _, by_head, dtype in map(shared_properties, blocks)}
    return len(kinds) == 1


def fills_words(bits: BothBits, width: int) -> bool:
    """Whether the codes of a tile lie in whole words, each bit at a place of its own."""
    if isinstance(bits, tuple):
        return False
    return width in (16, 32, 64, 128, 256) if bits == 3 else 32 % bits == width * bits % 32 == 0


@cached_tensors(32)
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
        position = torch.where(group < 15, 3 * (group % 5) + bit, 15)
        if kind == "keys":
            word, half = (plane * rows + row) * 8 + within // 2, within % 2
        else:
            word, half = (plane * (rows // 2) + row // 2) * 16 + within, row % 2
    else:
        group = width * bits // 16
        position, within = bits * (channel // group) + bit, channel % group
        if kind == "keys":
            word, half = token * (group // 2) + within // 2, within % 2
        else:
            word, half = token // 2 * group + within, token % 2
    return (32 * word + 16 * half + position).to(device)


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


@cached_tensors(32)
def kept_counts(
    static: HexConfig, length: int, heads: int, width: int, device: torch.device
) -> Tensor:
    """Return how many entries a static mask keeps of each token and head, `[heads, tokens]`."""
    return kept_by(static, length, heads, width, torch.device("cpu")).counts.to(device)


def laid_out(
    blocks: Sequence[HexBlock], config: HexConfig, before: tuple[int, ...] = (), entries: int = 0
) -> PackedSpans:
    """Return blocks that are alike in the layout of the kernels.

    The spans before them have lengths `before`, and a number of kept `entries`.
    """
    spans, lengths, kept = [], before, tuple(block.kept_keys.numel() for block in blocks)
    for block, count in zip(blocks, kept, strict=True):
        spans.append(one_laid_out(block, config, lengths, entries))
        lengths, entries = (*lengths, block.dynamic.shape[-1]), entries + count
    parts: dict[str, Any] = {name: torch.cat([span[name] for span in spans]) for name in spans[0]}
    lengths = lengths[len(before) :]
    return PackedSpans(
        bits=bits_of_both(blocks[0].bits)[0],
        reach=parts["value_steps"].float().amax((0, -1)),
        lengths=lengths,
        entries=kept,
        counts=(len(lengths), sum(map(tiles_of, lengths)), sum(kept)),
        kinds=tuple(dict.fromkeys(lengths)),
        **parts,
    )


def one_laid_out(
    block: HexBlock, config: HexConfig, before: tuple[int, ...], entries: int
) -> dict[str, Tensor]:
    """Return the tensors of a block in the layout of the kernels: see `laid_out`."""
    batch, length = block.dynamic.ndim - 1, block.dynamic.shape[-1]
    heads, width = block.key_steps.shape[-2:]

    def flat(x: Tensor) -> Tensor:
        """Join the batch axes."""
        return x.flatten(0, batch - 1) if batch else x[None]

    def split(x: Tensor) -> Tensor:
        """Split the last axis into tiles."""
        return F.pad(x, (0, -length % TILE)).unflatten(-1, (-1, TILE))

    def tiled(x: Tensor) -> Tensor:
        """Move the tiles of the last axis to the front."""
        return split(flat(x)).movedim(-2, 0)

    bits, _ = bits_of_both(block.bits)

    def words(packed: Tensor, kind: str) -> Tensor:
        codes = unpack_bits(flat(packed), bits, length).mT
        return laid(codes, bits, kind).movedim(-2, 0)

    counts = kept_counts(mask_settings(config), length, heads, width, block.dynamic.device)
    sizes = split(torch.where(flat(block.dynamic)[:, None], width, counts)).sum(-1)
    starts = (sizes.flatten().cumsum(0) - sizes.flatten()).view(sizes.shape)
    return dict(
        key_words=words(block.key_words, "keys"),
        key_steps=flat(block.key_steps)[None],
        key_minima=flat(block.key_minima)[None],
        value_words=words(block.value_words, "values"),
        value_steps=tiled(block.value_steps),
        value_minima=tiled(block.value_minima),
        kept_keys=block.kept_keys,
        kept_values=block.kept_values,
        dynamic=tiled(block.dynamic),
        tiles=table_of_tiles(before, length, starts.device),
        begins=starts.movedim(-1, 0) + entries,
    )


def table_of_tiles(before: tuple[int, ...], length: int, device: torch.device) -> Tensor:
    """Return the rows of the table of tiles for a span that lies after others.

    The tables of static masks have the tiles of each length, in the order of first occurrence.
    """
    kinds = [*dict.fromkeys((*before, length))]
    masks = sum(map(tiles_of, kinds[: kinds.index(length)]))
    tile = torch.arange(tiles_of(length), device=device)
    rest = (length - TILE * tile).clamp(max=TILE)
    parts = torch.full_like(tile, len(before)), rest, masks + tile, sum(before) + TILE * tile
    return torch.stack(parts, -1)


def blocks(spans: PackedSpans, batch: torch.Size) -> Iterator[HexBlock]:
    """Yield the blocks of spans, with their batch axes."""
    kept = zip(*(x.split(spans.entries) for x in (spans.kept_keys, spans.kept_values)), strict=True)
    first = 0
    for span, (length, entries) in enumerate(zip(spans.lengths, kept, strict=True)):
        tiles = slice(first, first + tiles_of(length))
        yield block_of(spans, span, tiles, entries, batch)
        first = tiles.stop


def block_of(
    spans: PackedSpans, span: int, tiles: slice, entries: tuple[Tensor, ...], batch: torch.Size
) -> HexBlock:
    """Return the block of a span: see `blocks`."""
    bits, length, width = spans.bits, spans.lengths[span], spans.key_steps.shape[-1]

    def apart(x: Tensor) -> Tensor:
        """Split the rows into batch axes."""
        return x.reshape(*batch, *x.shape[1:])

    def tokens(x: Tensor) -> Tensor:
        """Join the tiles."""
        return apart(x[tiles].movedim(0, -2).flatten(-2)[..., :length])

    def stream(words: Tensor, kind: str) -> Tensor:
        codes = lifted(words[tiles].movedim(0, -2), bits, width, kind, length)
        return apart(pack_bits(codes.mT.contiguous(), bits))

    return HexBlock(
        bits,
        stream(spans.key_words, "keys"),
        apart(spans.key_steps[span]),
        apart(spans.key_minima[span]),
        stream(spans.value_words, "values"),
        tokens(spans.value_steps),
        tokens(spans.value_minima),
        entries[0].clone(),
        entries[1].clone(),
        tokens(spans.dynamic),
    )
