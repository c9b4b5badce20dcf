"""The streaming cache, of vectorised spans."""

from collections.abc import Callable

import torch
from torch import Tensor

from optimized.vector.hex.attention import mass_drawn
from optimized.vector.hex.compress import hex_compress, hex_mask, hex_reconstruct
from optimized.vector.hex.expander import static_mask
from optimized.vector.hex.heavy_hitters import attention_mass, h2o_mask
from reference.hex.cache import (
    HexCache,
    add_mass,
    add_tokens,
    buffer_space,
    compress_sides,
    compressible_length,
    move_to_blocks,
    neutral_padding,
    uncompressed_cache,
)
from reference.hex.compress import HexBlock
from reference.hex.presets import HexConfig
from reference.precision import widen


def compress_span(
    config: HexConfig, keys: Tensor, values: Tensor, mass: Tensor, seen: int, first: bool
) -> HexBlock:
    kv_heads, tokens, width = keys.shape[-3:]
    if config.normalize:
        mass = mass / torch.arange(seen, seen - tokens, -1, dtype=mass.dtype, device=mass.device)
    windowed = not config.carry_recent and (first or config.recent_per_block)
    recent = config.recent if windowed else 0
    dynamic = h2o_mask(mass, config.heavy, recent, config.outside_recent)
    static = static_mask(config, tokens, kv_heads * width).to(keys.device)
    return compress_sides(config, keys, values, static, dynamic, hex_compress)


def hex_store(
    keys: Tensor,
    values: Tensor,
    scores: Tensor,
    marked: Tensor,
    valid: Tensor | None,
    config: HexConfig,
) -> HexCache:
    span, (heads, length, width) = marked.shape[-1], keys.shape[-3:]
    valid = marked.new_ones(length) if valid is None else valid
    real = valid[..., None, :].expand(*keys.shape[:-2], length)
    keys, values = (x.masked_fill(~real[..., None], 0) for x in (keys, values))
    mass = widen(scores).masked_fill(~real, 0).sum(-2)
    blocks = ()
    if span:
        static = static_mask(config, span, heads * width).to(keys.device)
        coded = real[..., :span, None] & ~hex_mask(static, marked, heads)
        blank = neutral_padding(keys[..., :span, :], coded, real[..., :span, None])
        span_of_both = blank, values[..., :span, :]
        blocks = (compress_sides(config, *span_of_both, static, marked, hex_compress),)
    return move_to_blocks(uncompressed_cache(config, keys, values, mass), blocks, span)


def read_blocks(
    cache: HexCache, restore: Callable[[HexBlock, Tensor], tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    keys, values = [], []
    for block in cache.blocks:
        channels = block.key_steps.shape[-2:].numel()
        static = static_mask(cache.config, block.dynamic.shape[-1], channels)
        span = restore(block, static.to(block.dynamic.device))
        keys.append(span[0])
        values.append(span[1])
    if cache.residual_keys.shape[-2] or not keys:
        keys.append(cache.residual_keys.clone())
        values.append(cache.residual_values.clone())
    keys, values = (torch.cat(x, -2) if len(x) > 1 else x[0] for x in (keys, values))
    return keys, values


def hex_read(cache: HexCache) -> tuple[Tensor, Tensor]:
    return read_blocks(cache, hex_reconstruct)


def recompress_as_one_span(cache: HexCache, size: int) -> HexCache:
    tokens, mass = cache.mass.shape[-1] + size, torch.cat([cache.mass, cache.residual_mass], -1)
    keys, values = hex_read(cache)
    if cache.config.mode == "oracle":
        keys = torch.cat([cache.original_keys, cache.residual_keys], -2)
        values = torch.cat([cache.original_values, cache.residual_values], -2)
    keys, values, seen = keys[..., :tokens, :], values[..., :tokens, :], mass.shape[-1]
    block = compress_span(cache.config, keys, values, mass[..., :tokens], seen, True)
    return move_to_blocks(cache, (block,), size)


def compress_oldest_block(cache: HexCache) -> HexCache:
    size, mass = cache.config.block, cache.residual_mass
    keys, values = cache.residual_keys[..., :size, :], cache.residual_values[..., :size, :]
    first, seen = not cache.blocks, mass.shape[-1]
    block = compress_span(cache.config, keys, values, mass[..., :size], seen, first)
    return move_to_blocks(cache, (*cache.blocks, block), size)


def compress_if_full(cache: HexCache) -> HexCache:
    if buffer_space(cache):
        return cache
    if cache.config.mode == "append" or len(cache.blocks) < cache.config.period:
        return compress_oldest_block(cache)
    return recompress_as_one_span(cache, cache.config.block)


def hex_prefill(queries: Tensor, keys: Tensor, values: Tensor, config: HexConfig) -> HexCache:
    tokens, settings = compressible_length(config, keys.shape[-2]), (None, True, False, None)
    mass = attention_mass(queries[..., :tokens, :], keys[..., :tokens, :], *settings)
    span = keys[..., :tokens, :], values[..., :tokens, :]
    blocks = (compress_span(config, *span, mass, tokens, True),) if tokens else ()
    later = attention_mass(queries[..., tokens:, :], keys, *settings)
    later[..., :tokens] += mass
    return move_to_blocks(uncompressed_cache(config, keys, values, later), blocks, tokens)


def hex_append(cache: HexCache, queries: Tensor, keys: Tensor, values: Tensor) -> HexCache:
    while keys.shape[-2]:
        room = buffer_space(cache)
        cache = add_tokens(cache, keys[..., :room, :], values[..., :room, :])
        cache = add_mass(cache, mass_drawn(queries[..., :room, :], cache))
        cache = compress_if_full(cache)
        queries, keys, values = (x[..., room:, :] for x in (queries, keys, values))
    return cache


def hex_recompress(cache: HexCache) -> HexCache:
    return recompress_as_one_span(cache, 0) if cache.blocks else cache
