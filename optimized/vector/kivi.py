"""KIVI's cache: all blocks and all tokens that leave the buffers at once."""

import torch
from jaxtyping import Float
from torch import Tensor

from optimized.vector.hex.kcvt import code
from optimized.vector.hex.packing import pack_bits, unpack_bits
from reference.hex.kcvt import Quantised, dequantise, narrow
from reference.quantizers.kivi import KiviCache


def kivi_prefill(
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    values: Float[Tensor, "*batch kv_heads tokens width"],
    bits: int = 2,
    group: int = 32,
    residual: int = 32,
    scales: torch.dtype | None = None,
) -> KiviCache:
    exact = keys.shape[-2] % residual, min(keys.shape[-2], residual)
    coded_keys, held_keys = keys.split([keys.shape[-2] - exact[0], exact[0]], -2)
    coded_values, held_values = values.split([values.shape[-2] - exact[1], exact[1]], -2)
    by_channel = key_blocks(coded_keys, bits, group, residual, scales)
    by_token = quantise_groups("values", coded_values, bits, group, scales)
    return KiviCache(
        bits=bits,
        group=group,
        residual=residual,
        scales=scales,
        key_words=pack_bits(by_channel.codes.flatten(-2), bits),
        key_steps=by_channel.steps,
        key_minima=by_channel.minima,
        value_words=pack_bits(by_token.codes.flatten(-2), bits),
        value_steps=by_token.steps,
        value_minima=by_token.minima,
        residual_keys=held_keys.clone(),
        residual_values=held_values.clone(),
    )


def kivi_append(
    cache: KiviCache,
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    values: Float[Tensor, "*batch kv_heads tokens width"],
) -> KiviCache:
    held_keys = torch.cat([cache.residual_keys, keys], -2)
    held_values = torch.cat([cache.residual_values, values], -2)
    settings = cache.bits, cache.group
    if full := held_keys.shape[-2] // cache.residual * cache.residual:
        blocks = key_blocks(held_keys[..., :full, :], *settings, cache.residual, cache.scales)
        words = pack_bits(blocks.codes.flatten(-2), cache.bits)
        cache = cache._replace(
            key_words=torch.cat([cache.key_words, words], -3),
            key_steps=torch.cat([cache.key_steps, blocks.steps], -3),
            key_minima=torch.cat([cache.key_minima, blocks.minima], -3),
        )
        held_keys = held_keys[..., full:, :].clone()
    old = held_values.shape[-2] - cache.residual
    if old > 0:
        rows = quantise_groups("values", held_values[..., :old, :], *settings, cache.scales)
        words = pack_bits(rows.codes.flatten(-2), cache.bits)
        cache = cache._replace(
            value_words=torch.cat([cache.value_words, words], -2),
            value_steps=torch.cat([cache.value_steps, rows.steps], -2),
            value_minima=torch.cat([cache.value_minima, rows.minima], -2),
        )
        held_values = held_values[..., old:, :].clone()
    return cache._replace(residual_keys=held_keys, residual_values=held_values)


def kivi_read(
    cache: KiviCache,
) -> tuple[
    Float[Tensor, "*batch kv_heads tokens width"], Float[Tensor, "*batch kv_heads tokens width"]
]:
    dtype, width = cache.residual_keys.dtype, cache.residual_keys.shape[-1]
    codes = unpack_bits(cache.key_words, cache.bits, cache.residual)
    codes = codes.unflatten(-1, (cache.residual // cache.group, cache.group))
    channels = narrow(dequantise(codes, cache.key_steps, cache.key_minima), dtype)
    keys = channels.flatten(-2).mT.flatten(-3, -2)
    codes = unpack_bits(cache.value_words, cache.bits, width)
    codes = codes.unflatten(-1, (width // cache.group, cache.group))
    values = narrow(dequantise(codes, cache.value_steps, cache.value_minima), dtype).flatten(-2)
    return (
        torch.cat([keys, cache.residual_keys], -2),
        torch.cat([values, cache.residual_values], -2),
    )


def key_blocks(
    keys: Tensor, bits: int, group: int, residual: int, scales: torch.dtype | None
) -> Quantised:
    """Quantise whole blocks of keys, each channel of a block a row."""
    blocks = keys.unflatten(-2, (keys.shape[-2] // residual, residual))
    return quantise_groups("keys", blocks.mT, bits, group, scales)


def quantise_groups(
    name: str, rows: Tensor, bits: int, group: int, scales: torch.dtype | None
) -> Quantised:
    x = rows.unflatten(-1, (rows.shape[-1] // group, group))
    return code(name, x, bits, torch.zeros_like(x, dtype=torch.bool), scales)
