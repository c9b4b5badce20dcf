"""KIVI's cache of vectorised codes."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from optimized.vector.hex._packed_products import CODES
from optimized.vector.hex.compress import numbers
from optimized.vector.hex.kcvt import code
from optimized.vector.hex.packing import as_bytes, pack_bits, unpack_bits
from reference.hex.kcvt import bits_of_both
from reference.precision import widest
from reference.quantizers.kivi import KiviCache, by_group, empty_cache, with_tokens

ROWS = 8
"""Most rows of all groups' weights that are multiplied by all channels: more waste too much."""


def quantise_in_groups(
    name: str, rows: Tensor, bits: int, cache: KiviCache
) -> tuple[Tensor, Tensor, Tensor]:
    x = by_group(rows, cache.group)
    block = code(name, x, bits, None, cache.scales)
    return pack_bits(block.codes.flatten(-2), bits), block.steps, block.minima


def kivi_append(cache: KiviCache, keys: Tensor, values: Tensor) -> KiviCache:
    return with_tokens(cache, keys, values, quantise_in_groups)


def kivi_prefill(
    keys: Tensor,
    values: Tensor,
    bits: int,
    group: int,
    residual: int,
    scales: torch.dtype | None,
    value_bits: int | None,
) -> KiviCache:
    empty = empty_cache(keys, values, bits, group, residual, scales, value_bits)
    return kivi_append(empty, keys, values)


def kivi_read(cache: KiviCache) -> tuple[Tensor, Tensor]:
    dtype, width = cache.residual_keys.dtype, cache.residual_keys.shape[-1]
    key_bits, value_bits = bits_of_both(cache.bits)
    codes = unpack_bits(cache.key_words, key_bits, cache.residual).mT
    groups = codes.unflatten(-2, (-1, cache.group))
    steps, minima = (x.mT[..., None, :] for x in (cache.key_steps, cache.key_minima))
    keys = numbers(groups, steps, minima).flatten(-4, -2).to(dtype)
    codes = by_group(unpack_bits(cache.value_words, value_bits, width), cache.group)
    steps, minima = (x[..., None] for x in (cache.value_steps, cache.value_minima))
    values = numbers(codes, steps, minima).flatten(-2).to(dtype)
    return (
        torch.cat([keys, cache.residual_keys], -2),
        torch.cat([values, cache.residual_values], -2),
    )


def kivi_attention(query: Tensor, cache: KiviCache, keys: Tensor, values: Tensor) -> Tensor:
    """Return the attention of one query a head over a cache and new tokens; no code is restored.

    A key is a code times the step of its channel and group, plus their minimum. So the query is
    scaled by the steps and multiplied by the codes; the weights are scaled by the steps of values.
    """
    *batch, kv_heads, _, width = keys.shape
    exact, (key_bits, value_bits) = widest(query, cache.residual_keys), bits_of_both(cache.bits)
    q = query.to(exact).view(*batch, kv_heads, -1, width) / width**0.5
    left, right = (x.to(exact) for x in (cache.residual_keys, cache.residual_values))
    left, right = torch.cat([left, keys.to(exact)], -2), torch.cat([right, values.to(exact)], -2)

    steps, minima = cache.key_steps.to(exact).mT.contiguous(), cache.key_minima.to(exact)
    lanes = Lanes(key_bits, cache.residual, cache.group)
    scaled = q[..., None, None, :, :] * steps[..., None, :]
    parts = [scaled[..., where, :, :, :] @ x for where, x in lanes.of(cache.key_words, -3, exact)]
    logits = torch.cat(parts, -4).movedim(0, -1).movedim(-3, -5).flatten(-2)
    lowest = q @ minima.movedim(-2, -3).flatten(-2)
    logits += lowest.view(logits.shape[:-1])[..., None]
    weights = torch.cat([logits.flatten(-3), q @ left.mT], -1).softmax(-1)

    old, recent = weights.split([cache.value_words.shape[-2], right.shape[-2]], -1)
    steps, minima = (x.to(exact) for x in (cache.value_steps, cache.value_minima))
    scaled = old[..., None, :, :] * steps.mT.contiguous()[..., None, :]
    lanes, groups = Lanes(value_bits, width, cache.group), width // cache.group
    every = lanes._replace(group=width)
    if together := groups * q.shape[-2] <= ROWS and every.lanes == lanes.lanes:
        lanes, scaled = every, scaled.flatten(-3, -2).unsqueeze(-3)
    parts = [scaled[..., where] @ x for where, x in lanes.of(cache.value_words, -2, exact)]
    read = sum(parts[1:], parts[0])
    read = with_own_channels(read, groups) if together else read
    read = read.movedim(0, -1).movedim(-4, -3) + (old @ minima)[..., None, None]
    return (read.flatten(-3) + recent @ right).to(query.dtype).reshape(query.shape)


def with_own_channels(products: Tensor, groups: int) -> Tensor:
    """Return the products of each group's rows with its own channels, of those with all."""
    apart = products.squeeze(-3).unflatten(-2, (groups, -1)).unflatten(-1, (groups, -1))
    return apart.diagonal(0, -4, -2).movedim(-1, -3)


class Lanes(NamedTuple):
    """Codes of `bits` bits in rows of `length` as floats, by lane, group, row and place.

    A lane is the same bits of all bytes, so that codes are not interleaved: lane 1 of 2 has every
    other code.
    """

    bits: int
    length: int
    group: int

    @property
    def lanes(self) -> int:
        """Return the number of lanes; 1 where the codes of a byte are not of one group."""
        each = 8 // self.bits
        return 1 if 8 % self.bits or self.group % each else each

    def of(self, words: Tensor, axis: int, dtype: torch.dtype) -> Iterator[tuple[slice, Tensor]]:
        """Yield stretches of an axis of words, each with its codes.

        All codes share one buffer of `CODES` numbers, so they must be used one by one;
        unless gradients go through them.
        """
        places, codes = words.shape[axis], words.numel() * (32 // self.bits)
        step = max(1, CODES * max(1, places) // max(1, codes))
        buffer = words.new_empty(min(step, places) * (codes // max(1, places)), dtype=dtype)
        for start in range(0, max(1, places), step):
            part = words.narrow(axis, start, min(step, places - start))
            buffer = torch.empty_like(buffer) if torch.is_grad_enabled() else buffer
            yield slice(start, start + step), self.converted(part, buffer)

    def converted(self, words: Tensor, buffer: Tensor) -> Tensor:
        """Return the codes of words as floats, in a buffer."""
        if self.lanes == 1:
            codes = by_group(unpack_bits(words, self.bits, self.length), self.group)
            return codes.movedim(-3, -2).to(buffer.dtype)[None]
        stream = as_bytes(words)[..., : self.length // self.lanes]
        stream = by_group(stream, self.group // self.lanes).movedim(-3, -2).contiguous()
        codes = buffer[: self.lanes * stream.numel()].view(self.lanes, *stream.shape)
        for lane, found in enumerate(codes):
            lowest = stream >> self.bits * lane if lane else stream
            last = lane + 1 == self.lanes
            found.copy_(lowest if last else lowest & 2**self.bits - 1)
        return codes
