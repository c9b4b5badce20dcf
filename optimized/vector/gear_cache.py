"""GEAR's streaming cache over vectorised bodies."""

import torch
from jaxtyping import Float
from torch import Tensor

from optimized.vector.gear import compressed, gear_reconstruct
from reference.quantizers.gear_cache import GearCache
from reference.quantizers.published import kivi_share as kivi_share
from reference.quantizers.published import quantizer_sizes as quantizer_sizes
from reference.quantizers.size import gear_size as gear_size
from reference.quantizers.size import kivi_size as kivi_size
from reference.quantizers.size import quantizer_bytes as quantizer_bytes


def gear_prefill(
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    values: Float[Tensor, "*batch kv_heads tokens width"],
    bits: int = 4,
    outliers: float = 0.02,
    rank: int = 4,
    decoded_rank: int = 2,
    block: int = 20,
    fill: bool = True,
    seed: int = 0,
    scales: torch.dtype | None = None,
) -> GearCache:
    cache = GearCache(
        bits=bits,
        outliers=outliers,
        decoded_rank=decoded_rank,
        block=block,
        fill=fill,
        seed=seed,
        scales=scales,
        key_blocks=(),
        value_blocks=(),
        residual_keys=keys[..., :0, :].clone(),
        residual_values=values[..., :0, :].clone(),
    )
    return with_block(cache, keys, values, rank) if keys.shape[-2] else cache


def gear_append(
    cache: GearCache,
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    values: Float[Tensor, "*batch kv_heads tokens width"],
) -> GearCache:
    held_keys = torch.cat([cache.residual_keys, keys], -2)
    held_values = torch.cat([cache.residual_values, values], -2)
    full = held_keys.shape[-2] // cache.block * cache.block
    for start in range(0, full, cache.block):
        span = slice(start, start + cache.block)
        new = held_keys[..., span, :], held_values[..., span, :]
        cache = with_block(cache, *new, cache.decoded_rank)
    if full:
        held_keys, held_values = (
            held_keys[..., full:, :].clone(),
            held_values[..., full:, :].clone(),
        )
    return cache._replace(residual_keys=held_keys, residual_values=held_values)


def gear_read(
    cache: GearCache, exact_outliers: bool = False
) -> tuple[
    Float[Tensor, "*batch kv_heads tokens width"], Float[Tensor, "*batch kv_heads tokens width"]
]:
    keys = [gear_reconstruct(block, exact_outliers) for block in cache.key_blocks]
    values = [gear_reconstruct(block, exact_outliers) for block in cache.value_blocks]
    return (
        torch.cat([*keys, cache.residual_keys], -2),
        torch.cat([*values, cache.residual_values], -2),
    )


def with_block(cache: GearCache, keys: Tensor, values: Tensor, rank: int) -> GearCache:
    settings = cache.bits, cache.outliers, rank, cache.fill, cache.seed, cache.scales
    by_channel = compressed("keys", keys, "channel", *settings)
    by_token = compressed("values", values, "token", *settings)
    return cache._replace(
        key_blocks=(*cache.key_blocks, by_channel), value_blocks=(*cache.value_blocks, by_token)
    )
