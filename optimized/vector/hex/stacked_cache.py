"""A layout of a HEX cache for products with its codes, kept from one decoding step to the next.

Blocks of one length are stacked. Entries that the static mask keeps are sorted in the order of
multiplication: keys by slot, values by channel. Tokens that are kept whole are stored separately.
Everything else is unchanged, and the original blocks can be restored bit for bit.
"""

from collections.abc import Callable
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from optimized._cached_tensors import cached_tensors
from optimized.vector.hex._packed_products import TokenSlots, slots
from optimized.vector.hex.expander import static_mask
from reference.hex.cache import HexCache
from reference.hex.compress import HexBlock
from reference.hex.kcvt import bits_of_both
from reference.hex.presets import HexConfig

INDEX = torch.int32
"""The type of indices: half the memory traffic of int64, and a layer has fewer than 2**31 entries.
"""

R = TypeVar("R")

_beside: Any = WeakTensorKeyDictionary()


def cached_on_tensor(flags: Tensor, find: Callable[..., R], *arguments: Any) -> R:
    """Return `find(*asked)`, cached for as long as the tensor `flags` lives.

    Unlike a cache of bounded size, this serves any number of conversations in turn.
    """
    found = _beside.setdefault(flags, {})
    key = find, arguments
    if key not in found:
        found[key] = find(*arguments)
    return found[key]


class Entries(NamedTuple):
    """The entries that a static mask keeps, sorted by slot or by channel.

    `tokens`, `slots` and `channels` count through all heads; `of_head` counts slots within a head.
    `rank` is the entry's rank among those of its token. `starts` is the first entry of each row, a
    slot or a channel.
    """

    tokens: Tensor
    of_head: Tensor
    slots: Tensor
    channels: Tensor
    rank: Tensor
    starts: Tensor

    def stored(self, begins: Tensor) -> Tensor:
        """Return the storage index of each entry, given that of each token's first entry."""
        return take_columns(begins.flatten(2).flatten(0, 1), self.tokens) + self.rank


def take_columns(rows: Tensor, places: Tensor) -> Tensor:
    """Return the same places of all rows; for a single row this is several times as fast."""
    return rows[0].index_select(0, places)[None] if len(rows) == 1 else rows[:, places]


class Kept(NamedTuple):
    """The entries that a static mask keeps in two orders, and their counts by head and token."""

    counts: Tensor
    by_token: Entries
    by_channel: Entries


@cached_tensors(8)
def kept_by(
    static: HexConfig,
    tokens: int,
    heads: int,
    width: int,
    device: torch.device,
    bits: int | None = None,
) -> Kept:
    """Return what the static mask of a span keeps: the same for all layers, rows and blocks.

    Slots are those of codes of `bits` bits; without `bits`, each token is one slot.
    """
    mask = static_mask(static, tokens, heads * width).to(device)
    mask = mask.unflatten(1, (heads, width)).movedim(1, 0)
    entry = mask.flatten().nonzero()[:, 0]
    token, channel = entry // width, entry // (width * tokens) * width + entry % width
    counts, columns = mask.sum(-1), mask.sum(-2).flatten()
    rank = torch.arange(len(entry), device=device)
    rank -= (counts.flatten().cumsum(0) - counts.flatten())[token]
    slot, rows, per_head = token, counts.flatten(), tokens
    if bits is not None:
        there = slots(bits, tokens, device)
        per_head = len(there.token)
        slot = token // tokens * per_head + there.of_token[token % tokens]
        rows = counts.new_zeros(heads * per_head).index_add(0, slot, torch.ones_like(slot))
    # every step reads this from memory, so fewer bytes are faster
    small = torch.uint8 if bits is not None and width < 2**8 else INDEX
    parts = (token, INDEX), (slot % per_head, INDEX), (slot, INDEX), (channel, INDEX), (rank, small)

    def sorted_by(row: Tensor, sizes: Tensor) -> Entries:
        order = row.argsort(stable=True)
        starts = (sizes.cumsum(0) - sizes).to(INDEX)
        return Entries._make([*(x[order].to(kind) for x, kind in parts), starts])

    return Kept(counts.to(INDEX), sorted_by(slot, rows), sorted_by(channel, columns))


class WholeTokens(NamedTuple):
    """Tokens that are kept whole, and their slots, `[rows, count]`.

    A row with fewer such tokens is padded by repeating its last one. `real` is false in a row that
    has none; `first` is true where a token is not padding.
    """

    places: Tensor
    keys: Tensor
    values: Tensor
    real: Tensor | None = None
    first: Tensor | None = None

    def write(self, logits: Tensor, queries: Tensor) -> None:
        """Write the logits of these keys into their slots."""
        exact = queries @ self.keys.mT
        if self.real is None:
            logits.index_copy_(-1, self.places[0], exact)
            return
        index = self.places[:, None, None].expand(*logits.shape[:-1], -1)
        exact = torch.where(self.real[:, None, None], exact, logits.gather(-1, index))
        logits.scatter_(-1, index, exact)

    def take(self, weights: Tensor) -> Tensor:
        """Return the weighted sum of these values, and set their weights to 0."""
        if self.first is None or self.real is None:
            own_weights = weights.index_select(-1, self.places[0])
            weights.index_fill_(-1, self.places[0], 0)
            return own_weights @ self.values
        index = self.places[:, None, None].expand(*weights.shape[:-1], -1)
        own_weights = weights.gather(-1, index)
        # a whole token includes what the static mask keeps of it, so its other weight is 0
        weights.scatter_(-1, index, own_weights.masked_fill(self.real[:, None, None], 0))
        return (own_weights * self.first[:, None, None]) @ self.values


class StackedBlocks(NamedTuple):
    """Blocks of one length, stacked: the first axes count blocks, batch rows and heads.

    The kept entries of `block` are those of the static mask, `[blocks * rows, entries]`. The scales
    of its values are in the order of slots.
    """

    block: HexBlock
    whole: WholeTokens

    @classmethod
    def of(cls, blocks: list[HexBlock], config: HexConfig, rows: int) -> "StackedBlocks":
        """Return blocks in this layout."""
        kept, block = static_kept_of(blocks[0], config), side_by_side(blocks, rows)
        _beside[block.dynamic] = _beside[blocks[0].dynamic]
        begins = first_entries(block, kept)[1]
        keys, values = (
            stored.index_select(0, (places := by.stored(begins)).flatten()).view(places.shape)
            for stored, by in zip(block[-3:-1], kept[1:], strict=True)
        )
        whole, there = kept_whole(block, begins), slots_of(block)
        steps, minima = (x[..., there.token] for x in (block.value_steps, block.value_minima))
        laid = dict(value_steps=steps, value_minima=minima, kept_keys=keys, kept_values=values)
        return cls(block._replace(**laid), whole)

    def blocks(self, config: HexConfig, batch: torch.Size) -> list[HexBlock]:
        """Return the original blocks, with their batch axes."""
        block, kept, there = self.block, static_kept_of(self.block, config), slots_of(self.block)
        steps, minima = (x[..., there.of_token] for x in (block.value_steps, block.value_minima))
        block = block._replace(value_steps=steps, value_minima=minima)
        sizes, begins = first_entries(block, kept)
        entries_of_block = sizes.flatten(1).sum(1).tolist()
        _, entry, real, _ = whole_entries(block, begins)
        real = real[:, None, :, None].expand(entry.shape) if real is not None else ...
        every = []
        for kept_by_mask, by, exact in zip(block[-3:-1], kept[1:], self.whole[1:3], strict=True):
            found = kept_by_mask.new_empty(sum(entries_of_block))
            found[by.stored(begins)] = kept_by_mask
            found[entry[real]] = exact[real]
            every.append([x.clone() for x in found.split(entries_of_block)])
        parts = [[x.reshape(*batch, *x.shape[1:]) for x in part] for part in block[1:-3]]
        dynamic = [x.reshape(*batch, *x.shape[1:]) for x in block.dynamic]
        by_block = zip(*parts, *every, dynamic, strict=True)
        return [HexBlock(block.bits, *tensors) for tensors in by_block]


class StackedCache(NamedTuple):
    """A HEX cache in this layout: runs of blocks of one length, and the cache without blocks."""

    runs: tuple[StackedBlocks, ...]
    rest: HexCache

    @property
    def blocks(self) -> int:
        """Return the number of blocks."""
        return sum(len(run.block.dynamic) for run in self.runs)

    @classmethod
    def of(cls, cache: HexCache) -> "StackedCache":
        """Return a cache in this layout."""
        rows = cache.residual_mass.shape[:-1].numel()
        alike = groupby(cache.blocks, shared_properties)
        runs = [StackedBlocks.of(list(group), cache.config, rows) for _, group in alike]
        return cls(tuple(runs), cache._replace(blocks=()))

    def followed(self, block: HexBlock, rest: HexCache) -> "StackedCache":
        """Return the cache with one more block and a new rest."""
        (new,), runs = StackedCache.of(rest._replace(blocks=(block,))).runs, self.runs
        if runs and shared_properties(runs[-1].block) == shared_properties(block):
            before = runs[-1].blocks(rest.config, block.dynamic.shape[:-1])
            rows = rest.residual_mass.shape[:-1].numel()
            new, runs = StackedBlocks.of([*before, block], rest.config, rows), runs[:-1]
        return StackedCache((*runs, new), rest)

    def cache(self) -> HexCache:
        """Return the cache as the specification stores it, bit for bit."""
        batch = self.rest.residual_mass.shape[:-1]
        blocks = (block for run in self.runs for block in run.blocks(self.rest.config, batch))
        return self.rest._replace(blocks=tuple(blocks))


def shared_properties(block: HexBlock) -> tuple[Any, ...]:
    """Return the properties that all blocks of a run share, whether stacked or not."""
    by_head = block.value_steps.ndim == block.key_steps.ndim
    return block.bits, block.dynamic.shape[-1], by_head, block.key_steps.dtype


def slots_of(block: HexBlock) -> TokenSlots:
    """Return the slots of the tokens of a block, or of each of stacked blocks."""
    return slots(bits_of_both(block.bits)[1], block.dynamic.shape[-1], block.dynamic.device)


def static_kept_of(block: HexBlock, config: HexConfig) -> Kept:
    """Return what the static mask keeps of a block, or of stacked blocks."""
    (heads, width), there = block.key_steps.shape[-2:], block.dynamic
    settings = mask_settings(config), there.shape[-1], heads, width, there.device, block.bits
    return cached_on_tensor(there, kept_by, *settings)


def first_entries(block: HexBlock, kept: Kept) -> tuple[Tensor, Tensor]:
    """Return the number of stored entries of each token and head, and the index of the first."""
    width = block.key_steps.shape[-1]
    sizes = torch.where(block.dynamic[:, :, None], width, kept.counts)
    return sizes, (sizes.flatten().cumsum(0, dtype=INDEX) - sizes.flatten()).view(sizes.shape)


def whole_entries(
    block: HexBlock, begins: Tensor
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Return the tokens that are kept whole, padded to the same number per row, and their entries.

    The last two are `real` and `first` of `WholeTokens`, or None if there is one row.
    """
    marked, rows = block.dynamic.movedim(0, 1).flatten(1), block.dynamic.shape[1]
    begins = begins.permute(1, 2, 0, 3).flatten(2)
    inside = torch.arange(block.key_steps.shape[-1], device=marked.device, dtype=INDEX)
    if rows == 1:
        places = marked[0].nonzero().T
        return places, begins.index_select(2, places[0])[..., None] + inside, None, None
    sizes, (row, column) = marked.sum(1), marked.nonzero(as_tuple=True)
    rank = torch.arange(len(row), device=marked.device) - (sizes.cumsum(0) - sizes)[row]
    places = row.new_zeros(rows, int(rank.max()) + 1 if len(rank) else 0)
    places[row, rank] = column
    number = torch.arange(places.shape[1], device=marked.device)
    places = places.gather(1, torch.minimum(number, (sizes - 1).clamp(min=0)[:, None]))
    entry = begins.gather(2, places[:, None].expand(-1, begins.shape[1], -1))[..., None] + inside
    return places, entry, marked.gather(1, places), number < sizes[:, None]


def kept_whole(block: HexBlock, begins: Tensor) -> WholeTokens:
    """Return the tokens that are kept whole."""
    places, entry, real, first = whole_entries(block, begins)
    # padding may point beyond the last stored entry
    entry = entry.clamp(max=max(0, block.kept_keys.numel() - 1))
    keys, values = (x.index_select(0, entry.flatten()).view(entry.shape) for x in block[-3:-1])
    length, there = block.dynamic.shape[-1], slots_of(block)
    lying = there.of_token[places % length] + places // length * len(there.token)
    return WholeTokens(lying, keys, values, real, first)


def side_by_side(blocks: list[HexBlock], rows: int) -> HexBlock:
    """Return blocks stacked along a new first axis, with batch axes flattened into the second."""
    batch = blocks[0].dynamic.ndim - 1

    def part(name: str) -> Tensor:
        parts = [getattr(block, name) for block in blocks]
        if name.startswith("kept"):
            return torch.cat(parts) if len(parts) > 1 else parts[0]
        joined = torch.stack(parts) if len(parts) > 1 else parts[0][None]
        return joined if batch == 1 else joined.reshape(len(parts), rows, *parts[0].shape[batch:])

    return HexBlock(blocks[0].bits, *(part(name) for name in HexBlock._fields[1:]))


def mask_settings(config: HexConfig) -> HexConfig:
    """Return a config with only the settings that determine the static mask, as a cache key."""
    return HexConfig()._replace(
        density=config.density,
        seed=config.seed,
        near=config.near,
        tile=config.tile,
        block=config.block,
    )
