"""A layout of a HEX cache for products with its codes, kept from one decoding step to the next.

Blocks of one length are stacked. Tokens that are kept whole are stored apart from the entries that
the static mask keeps. The original blocks can be restored bit for bit.
"""

from collections.abc import Callable
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from optimized._cached_tensors import cached_tensors
from optimized.vector.hex._packed_products import (
    TokenSlots,
    bit_masks,
    fields,
    lanes_of,
    slots,
    words_of,
)
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
_patterns: Any = WeakTensorKeyDictionary()


def cached_on_tensor(flags: Tensor, find: Callable[..., R], *arguments: Any) -> R:
    """Return `find(*asked)`, cached for as long as the tensor `flags` lives.

    Unlike a cache of bounded size, this serves any number of conversations in turn.
    """
    found = _beside.setdefault(flags, {})
    key = find, arguments
    if key not in found:
        found[key] = find(*arguments)
    return found[key]


class Kept(NamedTuple):
    """The entries that a static mask keeps, by channel.

    `tokens` and `channels` count through all heads; `ranks` counts the entries of one token.
    """

    counts: Tensor  # [heads, tokens]
    tokens: Tensor
    channels: Tensor
    ranks: Tensor

    def stored(self, begins: Tensor) -> Tensor:
        """Return the storage index of each entry, given that of each token's first entry."""
        return begins.flatten(1).index_select(1, self.tokens) + self.ranks


@cached_tensors(8)
def kept_by(static: HexConfig, tokens: int, heads: int, width: int, device: torch.device) -> Kept:
    """Return what the static mask of a span keeps: the same for all layers, rows and blocks."""
    mask = static_mask(static, tokens, heads * width).to(device)
    mask = mask.unflatten(1, (heads, width)).movedim(1, 0)
    entry = mask.flatten().nonzero()[:, 0]
    token, channel = entry // width, entry // (width * tokens) * width + entry % width
    counts = mask.sum(-1)
    first = counts.flatten().cumsum(0) - counts.flatten()
    rank = torch.arange(len(entry), device=device) - first[token]
    order = channel.argsort(stable=True)
    return Kept(counts.to(INDEX), *(x[order].to(INDEX) for x in (token, channel, rank)))


class Pattern(NamedTuple):
    """What the static mask keeps of a block, and where that lies among the block's numbers.

    Numbers are `[heads, width, slots]`. `starts` is the first kept entry of each channel, and the
    number of them.
    """

    kept: Kept
    there: TokenSlots
    masks: Tensor  # [fields, lanes], or [fields, 1] if all lanes are alike
    worth: Tensor  # the same: a masked value times its worth is the code
    places: Tensor
    starts: list[int]


@cached_tensors(8)
def pattern(
    static: HexConfig, tokens: int, heads: int, width: int, device: torch.device, bits: int
) -> Pattern:
    """Return the pattern of a block: the same for all layers, rows and blocks."""
    kept, there = kept_by(static, tokens, heads, width, device), slots(bits, tokens, device)
    places = kept.channels * len(there.token) + there.of_token[kept.tokens % tokens]
    among = kept.channels.bincount(minlength=heads * width)
    starts = F.pad(among.cumsum(0), (1, 0)).tolist()
    cut = fields(bits)
    masks = bit_masks(cut.masks, -(-tokens // cut.codes) * cut.period, device)
    worth = cut.worth.repeat(1, masks.shape[1] // cut.period).to(device)
    return Pattern(kept, there, masks, worth, places, starts)


class Side(NamedTuple):
    """The keys or values of stacked blocks.

    Steps and minima of keys are `[groups, heads, width, 1, 1]`, those of values `[groups, heads, 1,
    fields, lanes]`, or with one head where all share them.
    """

    lanes: Tensor  # [groups, heads, width, 1, lanes]
    steps: Tensor
    minima: Tensor
    kept: Tensor  # [groups, entries]: what the static mask keeps
    whole: Tensor  # [groups, heads, width, count]: tokens that are kept whole


class StackedBlocks(NamedTuple):
    """Blocks of one length, stacked: a group is a batch row of a block.

    A group with fewer whole tokens than another is padded by repeating its last one. `real` is
    false for a group that has none; there is no `real` if all have some.
    """

    kind: tuple[Any, ...]
    dynamic: Tensor  # [groups, tokens]
    places: Tensor  # [groups, 1, 1, count]: the slots of tokens that are kept whole
    real: Tensor | None  # [groups]
    keys: Side
    values: Side

    @classmethod
    def of(cls, blocks: list[HexBlock], config: HexConfig, rows: int) -> "StackedBlocks":
        """Return blocks in this layout."""
        block, shared = side_by_side(blocks, rows), pattern_of(blocks[0], config)
        begins = first_entries(block.dynamic, shared.kept, block.key_steps.shape[-1])[1]
        token, entry, real = whole_entries(block.dynamic, begins, block.key_steps.shape[-1])
        # padding may point beyond the last stored entry
        entry = entry.clamp(max=max(0, block.kept_keys.numel() - 1))
        where, slot = shared.kept.stored(begins), shared.there.token

        def side(words: Tensor, steps: Tensor, minima: Tensor, entries: Tensor) -> Side:
            lanes = lanes_of(words, bits_of_both(block.bits)[0], block.dynamic.shape[-1])
            kept, whole = (
                entries.index_select(0, x.flatten()).view(x.shape) for x in (where, entry)
            )
            return Side(lanes[..., None, :], steps, minima, kept, whole.mT.contiguous())

        steps, minima = (x[..., None, None] for x in (block.key_steps, block.key_minima))
        keys = side(block.key_words, steps, minima, block.kept_keys)
        by_head, count = block.value_steps.ndim == block.key_steps.ndim, keys.lanes.shape[-1]
        heads = block.key_steps.shape[1] if by_head else 1
        each = len(block.dynamic), heads, 1, len(slot) // count, count
        minima = block.value_minima[..., slot]
        if shared.there.unread is not None:  # one slot of a code has the minimum
            minima = minima.masked_fill(shared.there.unread, 0)
        by_slot = block.value_steps[..., slot].view(each), minima.view(each)
        values = side(block.value_words, *by_slot, block.kept_values)
        _patterns[block.dynamic] = shared
        places = shared.there.of_token[token][:, None, None]
        return cls(shared_properties(blocks[0]), block.dynamic, places, real, keys, values)

    def pattern(self, config: HexConfig) -> Pattern:
        """Return the pattern of each block."""
        found = _patterns.get(self.dynamic)
        if found is None:  # this is a copy
            (_, tokens), (_, heads, width, *_) = self.dynamic.shape, self.keys.lanes.shape
            device, static = self.dynamic.device, mask_settings(config)
            found = pattern(static, tokens, heads, width, device, self.bits)
            _patterns[self.dynamic] = found
        return found

    @property
    def bits(self) -> int:
        """Return the width of codes."""
        return bits_of_both(self.kind[0])[0]

    def blocks(self, config: HexConfig, batch: torch.Size) -> list[HexBlock]:
        """Return the original blocks, with their batch axes."""
        shared, width = self.pattern(config), self.keys.lanes.shape[2]
        sizes, begins = first_entries(self.dynamic, shared.kept, width)
        _, entry, real = whole_entries(self.dynamic, begins, width)
        entries_of_block = sizes.flatten(1).sum(1).view(-1, batch.numel()).sum(1).tolist()
        chosen = ... if real is None else real

        def apart(x: Tensor) -> list[Tensor]:
            return [*x.reshape(-1, *batch, *x.shape[1:])]

        def entries(side: Side) -> list[Tensor]:
            found = side.kept.new_empty(sum(entries_of_block))
            found[shared.kept.stored(begins)] = side.kept
            found[entry[chosen]] = side.whole.mT[chosen]
            return [x.clone() for x in found.split(entries_of_block)]

        def in_order(x: Tensor) -> list[Tensor]:
            x = x.flatten(-2)[..., 0, shared.there.of_token]
            return apart(x if self.kind[2] else x[:, 0])

        keys, values, length = self.keys, self.values, self.dynamic.shape[-1]
        words = (apart(words_of(x.lanes[..., 0, :], self.bits, length)) for x in (keys, values))
        key_words, value_words = words
        by_channel = key_words, apart(keys.steps[..., 0, 0]), apart(keys.minima[..., 0, 0])
        by_token = value_words, in_order(values.steps), in_order(values.minima)
        parts = *by_channel, *by_token, entries(keys), entries(values), apart(self.dynamic)
        return [HexBlock(self.kind[0], *tensors) for tensors in zip(*parts, strict=True)]


class StackedCache(NamedTuple):
    """A HEX cache in this layout: runs of blocks of one length, and the cache without blocks."""

    runs: tuple[StackedBlocks, ...]
    rest: HexCache

    @property
    def blocks(self) -> int:
        """Return the number of blocks."""
        rows = self.rest.residual_mass.shape[:-1].numel()
        return sum(len(run.dynamic) // max(1, rows) for run in self.runs)

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
        if runs and runs[-1].kind == new.kind:
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
    """Return the properties that all blocks of a run share: the bits come first."""
    by_head = block.value_steps.ndim == block.key_steps.ndim
    return block.bits, block.dynamic.shape[-1], by_head, block.key_steps.dtype


def pattern_of(block: HexBlock, config: HexConfig) -> Pattern:
    """Return the pattern of a block, cached for as long as it lives."""
    there, bits = block.dynamic, bits_of_both(block.bits)[0]
    shape = there.shape[-1], *block.key_steps.shape[-2:]
    return cached_on_tensor(there, pattern, mask_settings(config), *shape, there.device, bits)


def first_entries(dynamic: Tensor, kept: Kept, width: int) -> tuple[Tensor, Tensor]:
    """Return the number of stored entries of each token and head, and the index of the first."""
    sizes = torch.where(dynamic[:, None], width, kept.counts)
    return sizes, (sizes.flatten().cumsum(0, dtype=INDEX) - sizes.flatten()).view(sizes.shape)


def whole_entries(
    dynamic: Tensor, begins: Tensor, width: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the tokens that are kept whole, padded to the same number per group.

    Their entries and `real` of `StackedBlocks` come with them.
    """
    sizes, (group, column) = dynamic.sum(1), dynamic.nonzero(as_tuple=True)
    rank = torch.arange(len(group), device=dynamic.device) - (sizes.cumsum(0) - sizes)[group]
    token = group.new_zeros(len(dynamic), int(rank.max()) + 1 if len(rank) else 0)
    token[group, rank] = column
    number = torch.arange(token.shape[1], device=dynamic.device)
    token = token.gather(1, torch.minimum(number, (sizes - 1).clamp(min=0)[:, None]))
    inside = torch.arange(width, device=dynamic.device, dtype=INDEX)
    entry = begins.gather(2, token[:, None].expand(-1, begins.shape[1], -1))[..., None] + inside
    real = sizes > 0
    return token, entry, None if bool(real.all()) else real


def side_by_side(blocks: list[HexBlock], rows: int) -> HexBlock:
    """Return blocks whose first axis counts groups: the batch rows of each."""
    batch = blocks[0].dynamic.ndim - 1

    def part(name: str) -> Tensor:
        parts = [getattr(block, name) for block in blocks]
        if name.startswith("kept"):
            return torch.cat(parts) if len(parts) > 1 else parts[0]
        joined = torch.stack(parts) if len(parts) > 1 else parts[0][None]
        return joined.reshape(len(parts) * rows, *parts[0].shape[batch:])

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
