"""Attention that multiplies the codes of a HEX cache as they are, and restores no key or value.

A key is a code times the step of its channel, plus the channel's minimum. So the steps go into the
queries, the minima make one number a query, and what is multiplied is the codes; alike for values,
whose steps and minima go into the weights of their tokens. Where an entry is kept its code is 0:
what it has beyond the minimum is a sparse matrix, multiplied as such. Tokens that are kept whole
are dense, as those of the residual buffer are.
"""

from functools import lru_cache
from itertools import groupby
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from optimized.vector.hex._codes import Slots, Stream, slots
from optimized.vector.hex.compress import hex_reconstruct
from optimized.vector.hex.expander import static_mask
from reference.hex.attention import HexAttention
from reference.hex.cache import HexCache
from reference.hex.compress import HexBlock
from reference.hex.presets import HexConfig
from reference.precision import widest

LOGITS = 2**22
"""How many logits there are at one time."""

INDEX = torch.int32
"""What counts entries: half the memory to read, and 2**31 of them are enough for a layer."""


class Entries(NamedTuple):
    """What a static mask keeps, in some order: token, channel, and which of its token's it is.

    Channels are counted head after head, and so are tokens unless they are those `of_head`, and the
    slots where tokens lie; rows of that order begin at `starts`.
    """

    tokens: Tensor
    of_head: Tensor
    slots: Tensor
    channels: Tensor
    rank: Tensor
    starts: Tensor

    def stored(self, kept: Tensor, begins: Tensor) -> Tensor:
        """Pick these entries from what is stored, given where those of each token begin."""
        places = picked(begins, self.tokens) + self.rank
        return kept.index_select(0, places.flatten()).view(places.shape)


def picked(rows: Tensor, places: Tensor) -> Tensor:
    """Pick the same places of all rows; of a single one several times as fast."""
    return rows[0].index_select(0, places)[None] if len(rows) == 1 else rows[:, places]


class Kept(NamedTuple):
    """How many channels of each token a static mask keeps, head by head, and which."""

    counts: Tensor
    by_token: Entries
    by_channel: Entries


@lru_cache(maxsize=64)
def kept_by(
    static: HexConfig,
    tokens: int,
    heads: int,
    width: int,
    device: torch.device,
    bits: int | None = None,
) -> Kept:
    """Find what the static mask of a span keeps: the same for all layers, rows and blocks.

    Tokens lie in the slots of codes of so many bits, or each in its own place.
    """
    mask = static_mask(static, tokens, heads * width).to(device)
    mask = mask.unflatten(1, (heads, width)).movedim(1, 0)
    entry = mask.flatten().nonzero()[:, 0]
    token, channel = entry // width, entry // (width * tokens) * width + entry % width
    counts, columns = mask.sum(-1), mask.sum(-2).flatten()
    rank = torch.arange(len(entry), device=device)
    rank -= (counts.flatten().cumsum(0) - counts.flatten())[token]
    slot, rows = token, counts.flatten()
    if bits is not None:
        there = slots(bits, tokens, device)
        slot = token // tokens * len(there.token) + there.of_token[token % tokens]
        rows = counts.new_zeros(heads * len(there.token)).index_add(0, slot, torch.ones_like(slot))
    # what is read in every step is read from memory: the fewer bytes, the sooner
    small = torch.uint8 if bits is not None and width < 2**8 else INDEX
    parts = (token, INDEX), (token % tokens, INDEX), (slot, INDEX), (channel, INDEX), (rank, small)

    def sorted_by(row: Tensor, sizes: Tensor) -> Entries:
        order = row.argsort(stable=True)
        starts = (sizes.cumsum(0) - sizes).to(INDEX)
        return Entries._make([*(x[order].to(kind) for x, kind in parts), starts])

    return Kept(counts.to(INDEX), sorted_by(slot, rows), sorted_by(channel, columns))


class Sparse(NamedTuple):
    """A sparse matrix: its entries, row after row, the column of each, and where rows begin."""

    entries: Tensor
    columns: Tensor
    starts: Tensor

    @classmethod
    def of(
        cls, entries: Tensor, columns: Tensor, starts: Tensor, tables: int, rows: int
    ) -> "Sparse":
        """Join matrices, `[matrices, entries]`: in turn they multiply `tables` of so many rows."""
        count, size = entries.shape
        if count == 1:
            return cls(entries[0], columns, starts)
        which = torch.arange(count, device=entries.device, dtype=starts.dtype)[:, None]
        places = (columns + rows * (which % tables)).flatten()
        return cls(entries.flatten(), places, (starts + size * which).flatten())

    def times(self, table: Tensor) -> Tensor:
        """Multiply by a table, `[columns, queries]`."""
        found = torch.embedding_bag(
            table, self.columns, self.starts, per_sample_weights=self.entries
        )
        return found[0]


class Whole(NamedTuple):
    """Tokens that are kept whole, and their slots, `[rows, count]`.

    Where rows keep different numbers, those with fewer repeat their last one: `real` is false at a
    token of a row that keeps none, `first` where a token is no repetition.
    """

    places: Tensor
    keys: Tensor
    values: Tensor
    real: Tensor | None = None
    first: Tensor | None = None

    def write(self, logits: Tensor, queries: Tensor) -> None:
        """Put the products of queries and these keys where they belong."""
        exact = queries @ self.keys.mT
        if self.real is None:
            logits.index_copy_(-1, self.places[0], exact)
            return
        place = self.places[:, None, None].expand(*logits.shape[:-1], -1)
        exact = torch.where(self.real[:, None, None], exact, logits.gather(-1, place))
        logits.scatter_(-1, place, exact)

    def take(self, weights: Tensor) -> Tensor:
        """Mix these values, and leave no weight on them."""
        if self.first is None or self.real is None:
            some = weights.index_select(-1, self.places[0])
            weights.index_fill_(-1, self.places[0], 0)
            return some @ self.values
        place = self.places[:, None, None].expand(*weights.shape[:-1], -1)
        some = weights.gather(-1, place)
        # what the static mask keeps of these tokens is among that
        weights.scatter_(-1, place, some.masked_fill(self.real[:, None, None], 0))
        return (some * self.first[:, None, None]) @ self.values


class Coded(NamedTuple):
    """Compressed blocks of one length, side by side: axes count blocks, batch rows and heads."""

    tokens: int
    keys: Stream
    key_steps: Tensor
    key_minima: Tensor
    values: Stream
    value_steps: Tensor
    value_minima: Tensor
    kept_keys: Sparse
    kept_values: Sparse
    whole: Whole

    @property
    def slots(self) -> int:
        """Return where tokens may lie."""
        return len(self.key_steps) * len(self.keys.slots.token)

    def logits(self, queries: Tensor) -> Tensor:
        """Multiply queries, `[rows, heads, queries, width]`, by the keys of all slots."""
        shape, there = self.key_steps.shape[:3], self.keys.slots
        scaled = queries * self.key_steps[..., None, :]
        found = self.keys.before(scaled.flatten(0, 2)).unflatten(0, shape)
        found += queries @ self.key_minima[..., None]
        if len(self.kept_keys.entries):
            beyond = self.kept_keys.times(queries.mT.flatten(0, 2))
            found += beyond.view(found.mT.shape).mT
        if there.unread is not None:
            found.masked_fill_(there.unread, -torch.inf)
        found = found.movedim(0, -2).flatten(-2)
        if self.whole.places.shape[1]:
            self.whole.write(found, queries)
        return found

    def mixture(self, weights: Tensor) -> Tensor:
        """Mix all values under weights, `[rows, heads, queries, slots]`, which are used up."""
        shape, count = self.key_steps.shape[:3], len(self.values.slots.token)
        read = self.whole.take(weights) if self.whole.places.shape[1] else None
        split = weights.unflatten(-1, (shape[0], count)).movedim(-2, 0)
        scaled = split * self.value_steps[..., None, :]
        out = self.values.mixed(scaled.flatten(0, 2)).unflatten(0, shape)
        out += (split * self.value_minima[..., None, :]).sum(-1, keepdim=True)
        if len(self.kept_values.entries):
            beyond = self.kept_values.times(split.mT.reshape(-1, split.shape[-2]))
            out += beyond.view(out.mT.shape).mT
        out = out.sum(0) if len(out) > 1 else out[0]
        return out if read is None else out + read

    def spread(self, flags: Tensor) -> Tensor:
        """Take what is said of each token to its slot."""
        count = len(self.key_steps)
        split = flags.unflatten(-1, (count, self.tokens // count))
        return split[..., self.keys.slots.token].flatten(-2)

    def gathered(self, mass: Tensor) -> Tensor:
        """Take what every slot drew to its token."""
        there, count = self.keys.slots, len(mass) * len(self.key_steps)
        split = mass.reshape(count, len(there.token))
        return picked(split, there.of_token).view(len(mass), self.tokens)


class Plain(NamedTuple):
    """Tokens in full precision: the residual buffer, or what a mask of ones keeps."""

    tokens: int
    keys: Tensor
    values: Tensor

    @property
    def slots(self) -> int:
        """Return how many tokens there are."""
        return self.tokens

    def spread(self, flags: Tensor) -> Tensor:
        """Leave what is said of each token where it is."""
        return flags

    def gathered(self, mass: Tensor) -> Tensor:
        """Leave what each token drew where it is."""
        return mass

    def logits(self, queries: Tensor) -> Tensor:
        """Multiply queries by the keys of all tokens."""
        return queries @ self.keys.mT

    def mixture(self, weights: Tensor) -> Tensor:
        """Mix the values of all tokens under weights."""
        return weights @ self.values


def spans(cache: HexCache, exact: torch.dtype) -> list[Coded | Plain]:
    """Return what a cache holds, blocks of one length joined, the residual buffer last."""
    alike = groupby(cache.blocks, lambda one: (one.dynamic.shape[-1], one.key_steps.dtype))
    rows = cache.residual_mass.shape[:-1].numel()
    joined = [side_by_side(list(blocks), rows) for _, blocks in alike]
    residual = cache.residual_keys, cache.residual_values
    keys, values = (x.to(exact).reshape(rows, *x.shape[-3:]) for x in residual)
    found = [laid_out(cache.config, block, exact) for block in joined]
    return [*found, Plain(keys.shape[-2], keys, values)]


def side_by_side(blocks: list[HexBlock], rows: int) -> HexBlock:
    """Stack blocks along a new first axis, the batch axes flattened into the next."""
    batch = blocks[0].dynamic.ndim - 1

    def part(name: str) -> Tensor:
        some = [getattr(block, name) for block in blocks]
        if name.startswith("kept"):
            return torch.cat(some) if len(some) > 1 else some[0]
        joined = torch.stack(some) if len(some) > 1 else some[0][None]
        return joined if batch == 1 else joined.reshape(len(some), rows, *some[0].shape[batch:])

    return HexBlock(blocks[0].bits, *(part(name) for name in HexBlock._fields[1:]))


def mask_alone(config: HexConfig) -> HexConfig:
    """Return the settings that draw the static mask, so that nothing else tells two masks apart."""
    return HexConfig()._replace(
        density=config.density,
        seed=config.seed,
        near=config.near,
        tile=config.tile,
        block=config.block,
    )


def laid_out(config: HexConfig, block: HexBlock, exact: torch.dtype) -> Coded | Plain:
    """Prepare blocks that stand side by side for multiplication."""
    count, rows, heads, width = block.key_steps.shape
    dynamic, length, device = block.dynamic, block.dynamic.shape[-1], block.dynamic.device
    if config.density == 1 or exact == torch.float64:
        # in double precision what is restored has been rounded to the precision of its scales
        static = static_mask(config, length, heads * width).to(device)
        restored = (x.to(exact) for x in hex_reconstruct(block, static))
        return Plain(count * length, *(x.movedim(0, 2).flatten(2, 3) for x in restored))
    kept = kept_by(mask_alone(config), length, heads, width, device, block.bits)
    # where the entries of each token of each head begin
    sizes = torch.where(dynamic[:, :, None], width, kept.counts).flatten()
    begins = (sizes.cumsum(0, dtype=INDEX) - sizes).view(count * rows, heads * length)
    key_steps, key_minima = block.key_steps.to(exact), block.key_minima.to(exact)
    steps, minima = block.value_steps.to(exact), block.value_minima.to(exact)
    keys = Stream.of(block.key_words.flatten(0, 2), block.bits, length)
    values = Stream.of(block.value_words.flatten(0, 2), block.bits, length)
    by = kept.by_token
    beyond = picked(key_minima.view(count * rows, heads * width), by.channels)
    beyond = by.stored(block.kept_keys, begins).to(exact) - beyond
    kept_keys = Sparse.of(beyond, by.channels, by.starts, rows, heads * width)
    steps, minima = (in_slots(x, values.slots) for x in (steps, minima))
    by, places = kept.by_channel, heads * len(values.slots.token)
    each = minima.expand(count, rows, heads, -1).reshape(count * rows, places)
    beyond = by.stored(block.kept_values, begins).to(exact) - picked(each, by.slots)
    kept_values = Sparse.of(beyond, by.slots, by.starts, count * rows, places)
    return Coded(
        count * length,
        keys,
        key_steps,
        key_minima,
        values,
        steps if values.slots.unread is None else steps * values.slots.worth,
        minima,
        kept_keys,
        kept_values,
        kept_whole(block, begins, exact, keys.slots),
    )


def in_slots(scale: Tensor, there: Slots) -> Tensor:
    """Lay out what scales the tokens of each head, or of all heads, as they lie."""
    laid = picked(scale.flatten(0, -2), there.token).view(*scale.shape[:-1], len(there.token))
    return laid if scale.ndim == 4 else laid[:, :, None]


def kept_whole(block: HexBlock, begins: Tensor, exact: torch.dtype, there: Slots) -> Whole:
    """Collect the tokens that are kept whole, the same number in every row."""
    count, rows, heads, width = block.key_steps.shape
    marked, device = block.dynamic.movedim(0, 1).flatten(1), block.dynamic.device
    length = block.dynamic.shape[-1]
    begins = begins.view(count, rows, heads, length).permute(1, 2, 0, 3).flatten(2)
    inside = torch.arange(width, device=device, dtype=INDEX)
    real = whole = None
    if rows == 1:
        places = marked[0].nonzero().T
        entry = begins.index_select(2, places[0])[..., None] + inside
    else:
        sizes, (row, place) = marked.sum(1), marked.nonzero(as_tuple=True)
        rank = torch.arange(len(row), device=device) - (sizes.cumsum(0) - sizes)[row]
        places = row.new_zeros(rows, int(rank.max()) + 1 if len(rank) else 0)
        places[row, rank] = place
        number = torch.arange(places.shape[1], device=device)
        places = places.gather(1, torch.minimum(number, (sizes - 1).clamp(min=0)[:, None]))
        real, whole = marked.gather(1, places), number < sizes[:, None]
        entry = begins.gather(2, places[:, None].expand(-1, heads, -1))[..., None] + inside
        # filling may lie at the end of what is stored
        entry = entry.clamp(max=max(0, block.kept_keys.numel() - 1))
    keys, values = (
        x.index_select(0, entry.flatten()).view(entry.shape).to(exact)
        for x in (block.kept_keys, block.kept_values)
    )
    lying = there.of_token[places % length] if count > 1 else there.of_token[places]
    if count > 1:
        lying = lying + places // length * len(there.token)
    return Whole(lying, keys, values, real, whole)


def attend(
    queries: Tensor, cache: HexCache, valid: Tensor | None, causal: bool, scale: float | None,
    reading: bool = True,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the output, which is 0 unless `reading`, and the mass."""
    exact = widest(queries, cache.residual_keys)
    *batch, heads, count, width = queries.shape
    kv_heads, rows = cache.residual_keys.shape[-3], cache.residual_mass.shape[:-1].numel()
    parts = spans(cache, exact)
    lengths, places = [part.tokens for part in parts], [part.slots for part in parts]
    tokens, total = sum(lengths), sum(places)
    scale = 1 / sqrt(width) if scale is None else scale
    valid = None if valid is None else valid.view(rows, 1, 1, tokens)
    scaled = (queries.to(exact) * scale).reshape(rows, heads, count, width)
    out, mass = torch.zeros_like(scaled), scaled.new_zeros(rows, total)
    step = max(1, LOGITS // max(1, rows * heads * total))
    for start in range(0, count, step):
        some = slice(start, min(count, start + step))
        several = some.stop - start
        grouped = rows, kv_heads, heads // max(1, kv_heads) * several, width
        each = scaled[:, :, some].reshape(grouped)
        logits = torch.cat([part.logits(each) for part in parts], -1)
        by_query = logits.view(rows, heads, several, total)
        unseen = hidden(valid, tokens, some, causal, count, logits.device)
        if unseen is not None:
            split = zip(parts, unseen.split(lengths, -1), strict=True)
            unseen = torch.cat([part.spread(flags) for part, flags in split], -1)
            by_query.masked_fill_(unseen, -torch.inf)
        weights = logits.softmax(-1)
        if valid is not None and unseen is not None:
            weights.view_as(by_query).masked_fill_(unseen.all(-1, keepdim=True), 0)
        mass += weights.sum((1, 2))
        if reading:
            shares = zip(parts, weights.split(places, -1), strict=True)
            read = [part.mixture(share) for part, share in shares]
            out[:, :, some] = torch.stack(read).sum(0).view(rows, heads, several, width)
    largest = torch.finfo(queries.dtype).max
    output = out.clamp(-largest, largest).to(queries.dtype).view(queries.shape)
    drawn = zip(parts, mass.split(places, -1), strict=True)
    mass = torch.cat([part.gathered(share) for part, share in drawn], -1)
    return output, mass.view(*batch, tokens)


def hidden(
    valid: Tensor | None, tokens: int, some: slice, causal: bool, count: int, device: torch.device
) -> Tensor | None:
    """Return which tokens some of `count` queries do not see, or nothing where they see all."""
    unseen = None if valid is None else ~valid
    if causal and count > 1:
        last = torch.arange(tokens - count + some.start, tokens - count + some.stop, device=device)
        later = torch.arange(tokens, device=device) > last[:, None]
        unseen = later if unseen is None else unseen | later
    return unseen


def mass_drawn(queries: Tensor, cache: HexCache) -> Tensor:
    """Return the attention that queries hand out to each token."""
    return attend(queries, cache, None, True, None, reading=False)[1]


def hex_attention(
    queries: Tensor,
    cache: HexCache,
    valid: Tensor | None,
    causal: bool,
    scale: float | None,
    mass: bool,
) -> HexAttention:
    output, given = attend(queries, cache, valid, causal, scale)
    return HexAttention(output, given if mass else None)
