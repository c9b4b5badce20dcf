"""Attention over a HEX cache that restores a few heads at a time, in the order of their codes.

The codes of a channel lie together, so numbers are restored by channels, into a buffer of at most
5 MB or one channel, and multiplied there. What the masks keep is written over them.
"""

from collections.abc import Iterator
from itertools import product
from math import sqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor

from optimized._dispatch import kernel_on_gpu, learning
from optimized.vector.hex import compress
from optimized.vector.hex._packed_products import CODES, fields, numbers
from optimized.vector.hex.expander import static_mask
from optimized.vector.hex.stacked_cache import Pattern, Side, StackedBlocks, StackedCache
from reference.contract import checks
from reference.contract.enforce import has_memory
from reference.hex.attention import HexAttention
from reference.hex.cache import HexCache
from reference.hex.kcvt import joint_bits
from reference.precision import widest

LOGITS = 2**22
"""Most logits in memory at a time."""


class Coded(NamedTuple):
    """Compressed blocks of one length, stacked, for a number of batch rows."""

    run: StackedBlocks
    pattern: Pattern
    rows: int

    @property
    def tokens(self) -> int:
        """Return the number of tokens of all blocks."""
        return self.run.dynamic.numel() // max(1, self.rows)

    @property
    def slots(self) -> int:
        """Return the number of slots of all blocks."""
        return len(self.run.dynamic) * len(self.pattern.there.token) // max(1, self.rows)

    def logits(self, queries: Tensor) -> Tensor:
        """Return queries, `[rows, heads, queries, width]`, times the keys of all slots."""
        groups, unread = len(self.run.dynamic), self.pattern.there.unread
        every = queries
        if groups > self.rows:
            every = queries.expand(groups // self.rows, *queries.shape).flatten(0, 1)
        slots = len(self.pattern.there.token)
        found = every.new_empty(0)
        for part, x in self.stretches(self.run.keys, queries.dtype):
            if part is None:
                found = every @ x
            else:
                found = found if len(found) else every.new_zeros(*every.shape[:-1], slots)
                found[part[:2]] += every[part[:2]][..., part[2]] @ x
        found = found.view(-1, *queries.shape[:-1], slots)
        if rests := fields(self.run.bits).rests:
            # each slot of a code adds the minimum
            minima = self.run.keys.minima.to(found).view(-1, *every.shape[1::2], 1)
            lowest, apart = (every @ minima).view_as(found[..., :1]), self.by_field(found)
            for (field, lane), (other, begun) in rests:
                apart[..., other, :, begun] += apart[..., field, :, lane] - lowest
        if unread is not None:
            found.masked_fill_(unread, -torch.inf)
        return found[0] if len(found) == 1 else found.movedim(0, -2).flatten(-2)

    def mixture(self, weights: Tensor) -> Tensor:
        """Return the weighted sum of all values; weights are `[rows, heads, queries, slots]`.

        The weights are overwritten.
        """
        every = weights
        if len(self.run.dynamic) > self.rows:
            split = weights.unflatten(-1, (-1, len(self.pattern.there.token)))
            every = split.movedim(-2, 0).flatten(0, 1)
        for (field, lane), (other, begun) in fields(self.run.bits).rests:
            apart = self.by_field(every)
            apart[..., field, :, lane] = apart[..., other, :, begun]
        out = every.new_empty(*every.shape[:-1], self.run.keys.lanes.shape[2])
        for part, x in self.stretches(self.run.values, weights.dtype):
            if part is None:
                out = every @ x.mT
            else:
                out[part[:2]][..., part[2]] = every[part[:2]] @ x.mT
        out = out.view(-1, *weights.shape[:-1], out.shape[-1])
        return out.sum(0) if len(out) > 1 else out[0]

    def by_field(self, slots: Tensor) -> Tensor:
        """View slots as fields, periods and the lanes of a period."""
        cut = fields(self.run.bits)
        lanes = self.run.keys.lanes.shape[-1] // cut.period
        return slots.unflatten(-1, (len(cut.masks), lanes, cut.period))

    def stretches(self, side: Side, exact: torch.dtype) -> Iterator[tuple[Any, Tensor]]:
        """Yield numbers, `[groups, heads, channels, slots]`, at most `CODES` or those of a channel.

        With them come slices of the three axes, or None if these are all numbers.
        """
        shape, slots = side.lanes.shape[:3], len(self.pattern.there.token)
        alike = side.steps.dtype == side.kept.dtype == exact
        steps, minima, kept, whole = side[1:] if alike else (x.to(exact) for x in side[1:])
        _, _, masks, worth, places, starts = self.pattern
        worth = worth.to(exact)
        apart = steps.shape[-1] < worth.shape[-1]
        steps = steps if apart else steps * worth
        channels, heads, groups = (
            min(most, max(1, CODES // max(1, slots * within)))
            for most, within in zip(shape[::-1], (1, shape[2], shape[1] * shape[2]), strict=True)
        )
        if not (together := (groups, heads, channels) == shape):
            steps, minima = (x.expand(*shape, -1, -1) for x in (steps, minima))
        buffer = minima.new_empty(groups * heads * channels * slots)
        sizes = groups, heads, channels
        places_of = (range(0, n, size) for n, size in zip(shape, sizes, strict=True))
        for group, head, channel in product(*places_of):
            starts_of = zip((group, head, channel), sizes, strict=True)
            part: Any = tuple(slice(start, start + size) for start, size in starts_of)
            here = ... if together else part
            found = numbers(side.lanes[here], masks, buffer)
            found = found.mul_(worth) if apart else found
            found = found.mul_(steps[here]).add_(minima[here]).flatten(-2)
            first = head * shape[2] + channel
            last = first + found.shape[1:3].numel()
            own = slice(starts[first], starts[last])
            if own.stop > own.start:
                where = places[own] - first * slots if first else places[own]
                rows = found.view(len(found), -1)
                rows.scatter_(1, where.expand(len(rows), -1), kept[part[0], own])
            if whole.shape[-1]:
                exactly = whole[here]
                index = self.run.places[part[0]].expand(exactly.shape)
                if self.run.real is not None:
                    of_code = found.gather(-1, index)
                    real = self.run.real[part[0], None, None, None]
                    exactly = torch.where(real, exactly, of_code)
                found.scatter_(-1, index, exactly)
            yield None if together else part, found

    def spread(self, flags: Tensor) -> Tensor:
        """Return the flags of tokens in the order of slots."""
        there = self.pattern.there
        split = flags.unflatten(-1, (-1, self.run.dynamic.shape[1]))
        return split[..., there.token].flatten(-2)

    def gathered(self, mass: Tensor) -> Tensor:
        """Return the mass of slots in the order of tokens."""
        there = self.pattern.there
        split = mass.reshape(-1, len(there.token))
        return split.index_select(1, there.of_token).view(len(mass), self.tokens)


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
        """Return the flags as they are."""
        return flags

    def gathered(self, mass: Tensor) -> Tensor:
        """Return the mass as it is."""
        return mass

    def logits(self, queries: Tensor) -> Tensor:
        """Return queries times the keys of all tokens."""
        return queries @ self.keys.mT

    def mixture(self, weights: Tensor) -> Tensor:
        """Return the weighted sum of the values of all tokens."""
        return weights @ self.values


def joined(cache: HexCache | StackedCache, queries: Tensor) -> list[Coded | Plain]:
    """Return the parts that queries read: joined blocks of one length, then the residual buffer.

    If gradients are needed, codes cannot be multiplied, or there are no queries, all tokens are
    restored as one part.
    """
    exact = queries.dtype
    if isinstance(cache, StackedCache):
        laid = cache
    elif (
        not queries.numel() or not multiplies_codes(cache, exact) or needs_gradients(queries, cache)
    ):
        return [restored(cache, exact)]
    else:
        laid = StackedCache.of(cache)
    config, rows = laid.rest.config, laid.rest.residual_mass.shape[:-1].numel()
    runs = [Coded(run, run.pattern(config), rows) for run in laid.runs]
    return [*runs, restored(laid.rest, exact)]


def multiplies_codes(cache: HexCache, exact: torch.dtype) -> bool:
    """Whether codes are multiplied without being restored.

    Not in double precision: the specification rounds restored tokens to the precision of scales.
    Not where values have other bits: both would need the same places.
    """
    return cache.config.density < 1 and exact != torch.float64 and has_one_width(cache)


def has_one_width(cache: HexCache) -> bool:
    """Whether keys and values have codes of one width, and will have in later blocks."""
    both = joint_bits(cache.config.bits, cache.config.value_bits)
    return all(isinstance(bits, int) for bits in (both, *(block.bits for block in cache.blocks)))


def needs_gradients(queries: Tensor, cache: HexCache | StackedCache) -> bool:
    """Whether derivatives of attention to the cache may be asked for."""
    rest = cache.rest if isinstance(cache, StackedCache) else cache
    inputs = queries, rest.residual_keys, rest.residual_values
    return not all(map(has_memory, inputs)) or learning((queries, cache))


def restored(cache: HexCache, exact: torch.dtype) -> Plain:
    """Return the restored tokens of all blocks, followed by those of the residual buffer."""
    pairs, rows = [], cache.residual_mass.shape[:-1].numel()
    for block in cache.blocks:
        channels = block.key_steps.shape[-2:].numel()
        static = static_mask(cache.config, block.dynamic.shape[-1], channels)
        pairs.append(compress.restored(block, static.to(block.dynamic.device)))
    pairs.append((cache.residual_keys, cache.residual_values))
    both = (torch.cat(part, -2) if cache.blocks else part[0] for part in zip(*pairs, strict=True))
    keys, values = (x.to(exact).reshape(rows, *x.shape[-3:]) for x in both)
    return Plain(keys.shape[-2], keys, values)


def attend(
    queries: Tensor, cache: HexCache | StackedCache, valid: Tensor | None, causal: bool,
    scale: float | None, reading: bool = True, log_sum_exp: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
    """Return output (without `reading` the queries), mass, any log-sum-exp."""
    rest = cache.rest if isinstance(cache, StackedCache) else cache
    exact = widest(queries, rest.residual_keys)
    *batch, heads, count, width = queries.shape
    kv_heads, rows = rest.residual_keys.shape[-3], rest.residual_mass.shape[:-1].numel()
    scale = 1 / sqrt(width) if scale is None else scale
    scaled = (queries.to(exact) * scale).reshape(rows, heads, count, width)
    parts = joined(cache, scaled)
    lengths, places = [part.tokens for part in parts], [part.slots for part in parts]
    tokens, total = sum(lengths), sum(places)
    valid = None if valid is None else valid.view(rows, 1, 1, tokens)
    outputs, masses = [], []
    sums = scaled.new_empty(scaled.shape[:-1]) if log_sum_exp else None
    step = max(1, LOGITS // max(1, rows * heads * total))
    for start in range(0, count, step):
        chunk = slice(start, min(count, start + step))
        several = chunk.stop - start
        grouped = rows, kv_heads, heads // max(1, kv_heads) * several, width
        queries_of_group = scaled[:, :, chunk].reshape(grouped)
        logits = torch.cat([part.logits(queries_of_group) for part in parts], -1)
        by_query = logits.view(rows, heads, several, total)
        unseen = unseen_mask(valid, tokens, chunk, causal, count, logits.device)
        if unseen is not None:
            split = zip(parts, unseen.split(lengths, -1), strict=True)
            unseen = torch.cat([part.spread(flags) for part, flags in split], -1)
            by_query.masked_fill_(unseen, -torch.inf)
        if sums is not None:
            sums[:, :, chunk] = by_query.logsumexp(-1)
        weights = logits.softmax(-1)
        if valid is not None and unseen is not None:
            blind = unseen.all(-1, keepdim=True)
            weights = weights.view_as(by_query).masked_fill(blind, 0).view_as(weights)
        masses.append(weights.sum((1, 2)))
        if reading:
            shares = zip(parts, weights.split(places, -1), strict=True)
            read = [part.mixture(share) for part, share in shares]
            outputs.append(sum(read[1:], read[0]).view(rows, heads, several, width))
    mass = sum(masses[1:], masses[0]) if masses else scaled.new_zeros(rows, total)
    drawn = zip(parts, mass.split(places, -1), strict=True)
    mass = torch.cat([part.gathered(share) for part, share in drawn], -1).view(*batch, tokens)
    sums = None if sums is None else sums.view(queries.shape[:-1])
    if not reading:
        return queries, mass, sums
    output = torch.cat(outputs, 2) if outputs else scaled
    return output.to(queries.dtype).view(queries.shape), mass, sums


def attend_once(query: Tensor, cache: StackedCache) -> tuple[Tensor, Tensor]:
    """Return the output of one query that sees all, and the mass it gives to the residual buffer.

    This is `attend` with few operators.
    """
    kv_heads, _, width = cache.rest.residual_keys.shape[-3:]
    exact, mass = widest(query, cache.rest.residual_keys), cache.rest.residual_mass
    scaled = query.to(exact).view(mass.shape[:-1].numel(), kv_heads, -1, width) * (1 / sqrt(width))
    parts = joined(cache, scaled)
    logits = [part.logits(scaled) for part in parts]
    weights = torch.cat(logits, -1).softmax(-1)
    shares = weights.split([x.shape[-1] for x in logits], -1)
    drawn = shares[-1].sum((1, 2)).view(mass.shape)
    read = [part.mixture(share) for part, share in zip(parts, shares, strict=True)]
    return sum(read[1:], read[0]).to(query.dtype).view(query.shape), drawn


def unseen_mask(
    valid: Tensor | None, tokens: int, chunk: slice, causal: bool, count: int, device: torch.device
) -> Tensor | None:
    """Return the mask of tokens that queries do not see, or None if they see all.

    `some` selects among the last `count` tokens, whose queries are given.
    """
    unseen = None if valid is None else ~valid
    if causal and count > 1:
        last = torch.arange(
            tokens - count + chunk.start, tokens - count + chunk.stop, device=device
        )
        later = torch.arange(tokens, device=device) > last[:, None]
        unseen = later if unseen is None else unseen | later
    return unseen


def mass_drawn(queries: Tensor, cache: HexCache) -> Tensor:
    mass = attend(queries, cache, None, True, None, reading=False)[1]
    checks.refuse_overflow("queries", mass)
    return mass


@kernel_on_gpu
def hex_attention(
    queries: Tensor,
    cache: HexCache,
    valid: Tensor | None,
    causal: bool,
    scale: float | None,
    mass: bool,
    log_sum_exp: bool,
) -> HexAttention:
    output, given, sums = attend(queries, cache, valid, causal, scale, log_sum_exp=log_sum_exp)
    checks.refuse_overflow("queries", output.abs())
    return HexAttention(output, given if mass else None, sums)
