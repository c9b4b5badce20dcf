"""KIVI's cache of vectorised codes."""

import torch
from torch import Tensor

from optimized.vector.hex.kcvt import code
from optimized.vector.hex.packing import as_bytes, pack_bits, unpack_bits
from reference.hex.kcvt import bits_of_both, dequantise, joint_bits, scale_dtype, transposed
from reference.hex.packing import word_count
from reference.precision import widest
from reference.quantizers.kivi import KiviCache, by_group


def quantise_in_groups(
    name: str, rows: Tensor, bits: int, cache: KiviCache
) -> tuple[Tensor, Tensor, Tensor]:
    x = by_group(rows, cache.group)
    block = code(name, x, bits, torch.zeros_like(x, dtype=torch.bool), cache.scales)
    return pack_bits(block.codes.flatten(-2), bits), block.steps, block.minima


def kivi_append(cache: KiviCache, keys: Tensor, values: Tensor) -> KiviCache:
    held_keys = torch.cat([cache.residual_keys, keys], -2)
    held_values = torch.cat([cache.residual_values, values], -2)
    full = held_keys.shape[-2] // cache.residual * cache.residual
    old = max(0, held_values.shape[-2] - cache.residual)
    key_bits, value_bits = bits_of_both(cache.bits)
    if full:
        buffers = held_keys[..., :full, :].unflatten(-2, (-1, cache.residual))
        words, steps, minima = quantise_in_groups("keys", transposed(buffers), key_bits, cache)
        cache = cache._replace(
            key_words=torch.cat([cache.key_words, words], -3),
            key_steps=torch.cat([cache.key_steps, steps], -3),
            key_minima=torch.cat([cache.key_minima, minima], -3),
        )
    if old:
        span = held_values[..., :old, :]
        words, steps, minima = quantise_in_groups("values", span, value_bits, cache)
        cache = cache._replace(
            value_words=torch.cat([cache.value_words, words], -2),
            value_steps=torch.cat([cache.value_steps, steps], -2),
            value_minima=torch.cat([cache.value_minima, minima], -2),
        )
    return cache._replace(
        residual_keys=held_keys[..., full:, :].clone(),
        residual_values=held_values[..., old:, :].clone(),
    )


def kivi_prefill(
    keys: Tensor,
    values: Tensor,
    bits: int,
    group: int,
    residual: int,
    scales: torch.dtype | None,
    value_bits: int | None,
) -> KiviCache:
    heads, width = keys.shape[:-2], keys.shape[-1]
    words = keys.new_zeros(*heads, 0, dtype=torch.int32)
    stored = words.new_zeros(*heads, 0, dtype=scale_dtype(keys.dtype, scales))
    empty = KiviCache(
        bits=joint_bits(bits, value_bits),
        group=group,
        residual=residual,
        scales=scales,
        key_words=words.new_zeros(*heads, 0, width, word_count(residual, bits)),
        key_steps=stored.new_zeros(*heads, 0, width, residual // group),
        key_minima=stored.new_zeros(*heads, 0, width, residual // group),
        value_words=words.new_zeros(*heads, 0, word_count(width, value_bits or bits)),
        value_steps=stored.new_zeros(*heads, 0, width // group),
        value_minima=stored.new_zeros(*heads, 0, width // group),
        residual_keys=keys[..., :0, :].clone(),
        residual_values=values[..., :0, :].clone(),
    )
    return kivi_append(empty, keys, values)


def kivi_read(cache: KiviCache) -> tuple[Tensor, Tensor]:
    dtype, width = cache.residual_keys.dtype, cache.residual_keys.shape[-1]
    key_bits, value_bits = bits_of_both(cache.bits)
    codes = by_group(unpack_bits(cache.key_words, key_bits, cache.residual), cache.group)
    channels = dequantise(codes, cache.key_steps, cache.key_minima).flatten(-2)
    keys = transposed(channels).flatten(-3, -2).to(dtype)
    codes = by_group(unpack_bits(cache.value_words, value_bits, width), cache.group)
    values = dequantise(codes, cache.value_steps, cache.value_minima).flatten(-2).to(dtype)
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

    codes = lanes(cache.key_words, key_bits, cache.residual, cache.group, exact).movedim(-3, -2)
    blocks = q[..., None, :, :]
    scaled = blocks[..., None, :, :] * cache.key_steps.to(exact).mT[..., None, :]
    logits = scaled @ codes + (blocks @ cache.key_minima.to(exact)).mT[..., None]
    logits = logits.movedim(0, -1).movedim(-3, -5).flatten(-4)
    weights = torch.cat([logits, q @ left.mT], -1).softmax(-1)

    old, recent = weights.split([cache.value_words.shape[-2], right.shape[-2]], -1)
    codes = lanes(cache.value_words, value_bits, width, cache.group, exact).movedim(-3, -2)
    scaled = old[..., None, :, :] * cache.value_steps.to(exact).mT[..., None, :]
    read = (scaled @ codes).movedim(0, -1).movedim(-4, -3)
    read = (read + (old @ cache.value_minima.to(exact))[..., None, None]).flatten(-3)
    return (read + recent @ right).to(query.dtype).reshape(query.shape)


def lanes(words: Tensor, bits: int, length: int, group: int, dtype: torch.dtype) -> Tensor:
    """Return the codes of rows by lane, row, group and place; lane 1 of 2 has every other code.

    Codes of a lane stand at the same bits of all bytes, so that they need not be interleaved.
    """
    count = 1 if 8 % bits or group % (8 // bits) else 8 // bits
    if count == 1:
        return by_group(unpack_bits(words, bits, length), group).to(dtype)[None]
    stream = as_bytes(words)[..., : length // count]
    parts = [(stream >> bits * lane).bitwise_and_(2**bits - 1) for lane in range(count)]
    return torch.stack([by_group(part.to(dtype), group // count) for part in parts])
