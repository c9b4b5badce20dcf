"""GEAR's streaming cache of vectorised spans."""

import torch
from torch import Tensor

from optimized.vector.quantizers.gear import compress_side, gear_reconstruct
from reference.hex.kcvt import bits_of_both, joint_bits
from reference.precision import widest
from reference.quantizers.gear import GearBlock
from reference.quantizers.gear_cache import GearCache


def with_block(cache: GearCache, keys: Tensor, values: Tensor, rank: int) -> GearCache:
    settings = cache.outliers, rank, cache.fill, cache.seed, cache.scales
    key_bits, value_bits = bits_of_both(cache.bits)
    by_channel = compress_side("keys", keys, "channel", key_bits, *settings)
    by_token = compress_side("values", values, "token", value_bits, *settings)
    return cache._replace(
        key_blocks=(*cache.key_blocks, by_channel), value_blocks=(*cache.value_blocks, by_token)
    )


def gear_prefill(
    keys: Tensor,
    values: Tensor,
    bits: int,
    outliers: float,
    rank: int,
    decoded_rank: int,
    block: int,
    fill: bool,
    seed: int,
    scales: torch.dtype | None,
    value_bits: int | None,
) -> GearCache:
    settings = joint_bits(bits, value_bits), outliers, decoded_rank, block, fill, seed, scales
    empty = GearCache(*settings, (), (), keys[..., :0, :].clone(), values[..., :0, :].clone())
    return with_block(empty, keys, values, rank) if keys.shape[-2] else empty


def gear_append(cache: GearCache, keys: Tensor, values: Tensor) -> GearCache:
    held_keys = torch.cat([cache.residual_keys, keys], -2)
    held_values = torch.cat([cache.residual_values, values], -2)
    full = held_keys.shape[-2] // cache.block * cache.block
    for start in range(0, full, cache.block):
        span = slice(start, start + cache.block)
        new = held_keys[..., span, :], held_values[..., span, :]
        cache = with_block(cache, *new, cache.decoded_rank)
    return cache._replace(
        residual_keys=held_keys[..., full:, :].clone(),
        residual_values=held_values[..., full:, :].clone(),
    )


def gear_read(cache: GearCache, exact_outliers: bool) -> tuple[Tensor, Tensor]:
    keys = restored(cache.key_blocks, exact_outliers)
    values = restored(cache.value_blocks, exact_outliers)
    return (
        torch.cat([*keys, cache.residual_keys], -2),
        torch.cat([*values, cache.residual_values], -2),
    )


def gear_attention(
    query: Tensor, cache: GearCache, keys: Tensor, values: Tensor, exact_outliers: bool
) -> Tensor:
    """Return the attention of one query a head over a cache and new tokens; no part is moved."""
    *batch, kv_heads, _, width = keys.shape
    exact = widest(query, keys)
    q = query.to(exact).view(*batch, kv_heads, -1, width) / width**0.5
    left = [*restored(cache.key_blocks, exact_outliers), torch.cat([cache.residual_keys, keys], -2)]
    weights = torch.cat([q @ x.to(exact).mT for x in left], -1).softmax(-1)
    new = torch.cat([cache.residual_values, values], -2)
    right = [*restored(cache.value_blocks, exact_outliers), new]
    shares = weights.split([x.shape[-2] for x in right], -1)
    read = [share @ x.to(exact) for share, x in zip(shares, right, strict=True)]
    return sum(read[1:], read[0]).to(query.dtype).reshape(query.shape)


def restored(blocks: tuple[GearBlock, ...], exact_outliers: bool) -> list[Tensor]:
    """Return the first block, and all others, which are equally long, together."""
    first = [gear_reconstruct(block, exact_outliers) for block in blocks[:1]]
    if len(blocks) < 2:
        return first
    bits, *parts = zip(*blocks[1:], strict=True)
    others = GearBlock(bits[0], *map(torch.stack, parts))
    return [*first, gear_reconstruct(others, exact_outliers).movedim(0, -3).flatten(-3, -2)]
