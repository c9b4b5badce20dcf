"""The streaming HEX cache over vectorised bodies."""

from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from optimized.vector.heavy_hitters import attention_mass, h2o_mask
from optimized.vector.hex.expander import expander_mask
from optimized.vector.hex_block import hex_compress, hex_reconstruct
from reference.hex import cache_errors as refuse
from reference.hex.cache import HexCache
from reference.hex.compress import HexBlock
from reference.hex.presets import HexConfig

recent_masks = lru_cache(maxsize=8)(expander_mask)


def hex_prefill(
    queries: Float[Tensor, "*batch query_heads tokens width"],
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    values: Float[Tensor, "*batch kv_heads tokens width"],
    config: HexConfig,
) -> HexCache:
    refuse.arrival(queries, keys, values)
    refuse.config("config", config, config)
    held = config.recent if config.carry_recent else 0
    tokens = max(0, keys.shape[-2] - held) // config.block * config.block
    mass = attention_mass(queries[..., :tokens, :], keys[..., :tokens, :])
    later = attention_mass(queries[..., tokens:, :], keys)
    blocks = ()
    if tokens:
        span = keys[..., :tokens, :], values[..., :tokens, :]
        blocks = (compress_span(config, *span, mass, tokens, first=True),)
    remembered = 0 if config.mode == "append" else tokens
    originals = tokens if config.mode == "oracle" else 0
    return HexCache(
        config=config,
        blocks=blocks,
        residual_keys=keys[..., tokens:, :].clone(),
        residual_values=values[..., tokens:, :].clone(),
        residual_mass=later[..., tokens:].clone(),
        mass=(mass + later[..., :tokens])[..., :remembered].clone(),
        original_keys=keys[..., :originals, :].clone(),
        original_values=values[..., :originals, :].clone(),
    )


def hex_append(
    cache: HexCache,
    queries: Float[Tensor, "*batch query_heads tokens width"],
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    values: Float[Tensor, "*batch kv_heads tokens width"],
) -> HexCache:
    refuse.instance("cache", cache, HexCache)
    refuse.arrival(queries, keys, values)
    refuse.joins(keys, cache.residual_keys)
    if keys.shape[-2] == 0:
        return cache
    config = cache.config
    limit = config.block + (config.recent if config.carry_recent else 0)
    pieces = [limit - cache.residual_keys.shape[-2]]
    while sum(pieces) < keys.shape[-2]:
        pieces.append(config.block)
    pieces[-1] -= sum(pieces) - keys.shape[-2]
    parts = (x.split(pieces, -2) for x in (queries, keys, values))
    for new in zip(*parts, strict=True):
        cache = hold(cache, *new)
        if cache.residual_keys.shape[-2] == limit:
            append = config.mode == "append" or len(cache.blocks) < config.period
            cache = compress_residual(cache) if append else recompress(cache, config.block)
    return cache


def hex_recompress(cache: HexCache) -> HexCache:
    refuse.instance("cache", cache, HexCache)
    if cache.config.mode == "append":
        raise ValueError("cache must be in mode 'full' or 'oracle', got 'append'")
    return recompress(cache, 0) if cache.blocks else cache


def hex_read(
    cache: HexCache,
) -> tuple[
    Float[Tensor, "*batch kv_heads tokens width"], Float[Tensor, "*batch kv_heads tokens width"]
]:
    refuse.instance("cache", cache, HexCache)
    kv_heads, width = cache.residual_keys.shape[-3::2]
    device = cache.residual_keys.device
    restored = [
        hex_reconstruct(
            block,
            static_mask(cache.config, block.dynamic.shape[-1], kv_heads * width).to(device),
        )
        for block in cache.blocks
    ]
    keys, values = zip(*restored, (cache.residual_keys, cache.residual_values), strict=True)
    return torch.cat(keys, -2), torch.cat(values, -2)


def static_mask(config: HexConfig, tokens: int, channels: int) -> Tensor:
    if config.density in (0, 1):
        return torch.full((tokens, channels), config.density == 1)
    shape = (tokens, channels, config.density, config.seed)
    try:
        return recent_masks(*shape, False, config.tile, config.block)
    except ValueError:
        if not config.near:
            raise
        return recent_masks(*shape, True, config.tile, config.block)


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
    return hex_compress(
        keys, values, static, dynamic, config.bits, config.value_group, config.scales
    )


def hold(cache: HexCache, queries: Tensor, keys: Tensor, values: Tensor) -> HexCache:
    mass = attention_mass(queries, torch.cat([hex_read(cache)[0], keys], -2))
    residual = cache.residual_mass.shape[-1] + keys.shape[-2]
    arrived = torch.nn.functional.pad(cache.residual_mass, (0, keys.shape[-2]))
    return cache._replace(
        residual_keys=torch.cat([cache.residual_keys, keys], -2),
        residual_values=torch.cat([cache.residual_values, values], -2),
        residual_mass=arrived + mass[..., mass.shape[-1] - residual :],
        mass=cache.mass + mass[..., : cache.mass.shape[-1]],
    )


def compress_residual(cache: HexCache) -> HexCache:
    config, size, mass = cache.config, cache.config.block, cache.residual_mass
    span = cache.residual_keys[..., :size, :], cache.residual_values[..., :size, :]
    block = compress_span(config, *span, mass[..., :size], mass.shape[-1], first=not cache.blocks)
    return leave(cache, (*cache.blocks, block), size)


def recompress(cache: HexCache, size: int) -> HexCache:
    keys, values = hex_read(cache)
    if cache.config.mode == "oracle":
        keys = torch.cat([cache.original_keys, cache.residual_keys], -2)
        values = torch.cat([cache.original_values, cache.residual_values], -2)
    mass = torch.cat([cache.mass, cache.residual_mass], -1)
    tokens = cache.mass.shape[-1] + size
    span = keys[..., :tokens, :], values[..., :tokens, :]
    block = compress_span(cache.config, *span, mass[..., :tokens], mass.shape[-1], first=True)
    return leave(cache, (block,), size)


def leave(cache: HexCache, blocks: tuple[HexBlock, ...], size: int) -> HexCache:
    config, mass = cache.config, cache.residual_mass
    keys, values = cache.residual_keys, cache.residual_values
    remembered = 0 if config.mode == "append" else size
    originals = size if config.mode == "oracle" else 0
    return HexCache(
        config=config,
        blocks=blocks,
        residual_keys=keys[..., size:, :].clone(),
        residual_values=values[..., size:, :].clone(),
        residual_mass=mass[..., size:].clone(),
        mass=torch.cat([cache.mass, mass[..., :remembered]], -1),
        original_keys=torch.cat([cache.original_keys, keys[..., :originals, :]], -2),
        original_values=torch.cat([cache.original_values, values[..., :originals, :]], -2),
    )
