"""Attention over a HEX cache that multiplies its codes directly, without restoring keys or values.

A key is a code times the step of its channel, plus the channel's minimum. So queries are scaled by
the steps and multiplied by the codes; the minima add one number per query. For values, the steps
and minima of tokens scale the weights instead. A kept entry has code 0, so its difference from the
minimum is added as a sparse matrix product. Tokens that are kept whole are multiplied as dense
rows, as are those of the residual buffer.
"""

from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from optimized._dispatch import kernel_on_gpu, learning
from optimized.vector.hex import compress
from optimized.vector.hex._packed_products import CodeLanes
from optimized.vector.hex.expander import static_mask
from optimized.vector.hex.stacked_cache import (
    StackedBlocks,
    StackedCache,
    WholeTokens,
    static_kept_of,
    take_columns,
)
from reference.contract import checks
from reference.contract.enforce import has_memory
from reference.hex.attention import HexAttention
from reference.hex.cache import HexCache
from reference.hex.kcvt import bits_of_both, joint_bits
from reference.hex.presets import HexConfig
from reference.precision import widest

LOGITS = 2**22
"""Most logits in memory at a time."""


class Sparse(NamedTuple):
    """A sparse matrix in CSR form: entries row by row, their columns, and the starts of rows."""

    entries: Tensor
    columns: Tensor
    starts: Tensor

    @classmethod
    def of(
        cls, entries: Tensor, columns: Tensor, starts: Tensor, tables: int, rows: int
    ) -> "Sparse":
        """Join matrices, `[matrices, entries]`, of one pattern into one block matrix.

        Matrix i multiplies table `i % tables`, which has `rows` rows.
        """
        count, size = entries.shape
        if count == 1:
            return cls(entries[0], columns, starts)
        which = torch.arange(count, device=entries.device, dtype=starts.dtype)[:, None]
        places = (columns + rows * (which % tables)).flatten()
        return cls(entries.flatten(), places, (starts + size * which).flatten())

    def times(self, table: Tensor) -> Tensor:
        """Return the product with a table, `[columns, queries]`."""
        found = torch.embedding_bag(
            table, self.columns, self.starts, per_sample_weights=self.entries
        )
        return found[0]


class Coded(NamedTuple):
    """Compressed blocks of one length, stacked: the first axes count blocks, batch rows, heads."""

    tokens: int
    keys: CodeLanes
    key_steps: Tensor
    key_minima: Tensor
    values: CodeLanes
    value_steps: Tensor
    value_minima: Tensor
    kept_keys: Sparse
    kept_values: Sparse
    whole: WholeTokens

    @property
    def slots(self) -> int:
        """Return the number of slots of all blocks."""
        return len(self.key_steps) * len(self.keys.slots.token)

    def logits(self, queries: Tensor) -> Tensor:
        """Return queries, `[rows, heads, queries, width]`, times the keys of all slots."""
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
        """Return the weighted sum of all values; weights are `[rows, heads, queries, slots]`.

        The weights are overwritten.
        """
        shape, count = self.key_steps.shape[:3], len(self.values.slots.token)
        read = self.whole.take(weights) if self.whole.places.shape[1] else None
        split = weights.unflatten(-1, (shape[0], count)).movedim(-2, 0)
        scaled = split * self.value_steps[..., None, :]
        out = self.values.mixed(scaled.flatten(0, 2)).unflatten(0, shape)
        out += (split * self.value_minima[..., None, :]).sum(-1, keepdim=True)
        if len(self.kept_values.entries):
            beyond = self.kept_values.times(split.mT.flatten(0, -2))
            out += beyond.view(out.mT.shape).mT
        out = out.sum(0) if len(out) > 1 else out[0]
        return out if read is None else out + read

    def spread(self, flags: Tensor) -> Tensor:
        """Return the flags of tokens in the order of slots."""
        count = len(self.key_steps)
        split = flags.unflatten(-1, (count, self.tokens // count))
        return split[..., self.keys.slots.token].flatten(-2)

    def gathered(self, mass: Tensor) -> Tensor:
        """Return the mass of slots in the order of tokens."""
        there, count = self.keys.slots, len(mass) * len(self.key_steps)
        split = mass.reshape(count, len(there.token))
        return take_columns(split, there.of_token).view(len(mass), self.tokens)


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
    exact, empty = queries.dtype, not queries.numel()
    plain = isinstance(cache, HexCache) and not multiplies_codes(cache, exact)
    if plain or empty or needs_gradients(queries, cache):
        return [restored(cache.cache() if isinstance(cache, StackedCache) else cache, exact)]
    laid = cache if isinstance(cache, StackedCache) else StackedCache.of(cache)
    runs = [coded(run, laid.rest.config, exact) for run in laid.runs]
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


def coded(run: StackedBlocks, config: HexConfig, exact: torch.dtype) -> Coded:
    """Return stacked blocks prepared for multiplication."""
    block, kept = run.block, static_kept_of(run.block, config)
    (count, rows, heads, width), length = block.key_steps.shape, block.dynamic.shape[-1]
    key_steps, key_minima = block.key_steps.to(exact), block.key_minima.to(exact)
    key_bits, value_bits = bits_of_both(block.bits)
    keys = CodeLanes.of(block.key_words.flatten(0, 2), key_bits, length)
    values = CodeLanes.of(block.value_words.flatten(0, 2), value_bits, length)
    each = count, rows, -1, len(values.slots.token)  # scales of each head, or shared by all heads
    value_steps, value_minima = (
        x.to(exact).view(each) for x in (block.value_steps, block.value_minima)
    )
    by = kept.by_token
    beyond = take_columns(key_minima.reshape(count * rows, heads * width), by.channels)
    beyond = block.kept_keys.to(exact) - beyond
    kept_keys = Sparse.of(beyond, by.channels, by.starts, rows, heads * width)
    by, places = kept.by_channel, heads * len(values.slots.token)
    minima = value_minima.view(count * rows, -1)
    beyond = take_columns(minima, by.of_head if value_minima.shape[2] < heads else by.slots)
    beyond = block.kept_values.to(exact) - beyond
    kept_values = Sparse.of(beyond, by.slots, by.starts, count * rows, places)
    whole = run.whole._replace(keys=run.whole.keys.to(exact), values=run.whole.values.to(exact))
    return Coded(
        count * length,
        keys,
        key_steps,
        key_minima,
        values,
        value_steps,
        value_minima,
        kept_keys,
        kept_values,
        whole,
    )


def attend(
    queries: Tensor, cache: HexCache | StackedCache, valid: Tensor | None, causal: bool,
    scale: float | None, reading: bool = True, log_sum_exp: bool = False, recent: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
    """Return output (without `reading` the queries), mass (or a `recent` part), any log-sum-exp."""
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
    weighed = parts[-1:] if recent else parts
    skipped = total - sum(part.slots for part in weighed)
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
        masses.append(weights[..., skipped:].sum((1, 2)))
        if reading:
            shares = zip(parts, weights.split(places, -1), strict=True)
            read = [part.mixture(share) for part, share in shares]
            outputs.append(sum(read[1:], read[0]).view(rows, heads, several, width))
    mass = sum(masses[1:], masses[0]) if masses else scaled.new_zeros(rows, total - skipped)
    drawn = zip(weighed, mass.split([part.slots for part in weighed], -1), strict=True)
    mass = torch.cat([part.gathered(share) for part, share in drawn], -1)
    mass = mass.view(*batch, sum(part.tokens for part in weighed))
    sums = None if sums is None else sums.view(queries.shape[:-1])
    if not reading:
        return queries, mass, sums
    output = torch.cat(outputs, 2) if outputs else scaled
    return output.to(queries.dtype).view(queries.shape), mass, sums


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
