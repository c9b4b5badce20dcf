"""GEAR while decoding: the prompt at once, then blocks of a few tokens as they fill."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from reference.hex import cache_errors
from reference.kinds import Scales
from reference.quantizers import errors as refuse
from reference.quantizers.gear import GearBlock, compress, gear_reconstruct


class GearCache(NamedTuple):
    """One layer's cache: immutable, each step returns the next one.

    Source:
        HEX-GEAR.
    """

    bits: int
    outliers: float
    decoded_rank: int
    block: int
    fill: bool
    seed: int
    scales: Scales
    key_blocks: tuple[GearBlock, ...]
    value_blocks: tuple[GearBlock, ...]
    residual_keys: Float[Tensor, "*batch kv_heads residual width"]
    residual_values: Float[Tensor, "*batch kv_heads residual width"]


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
    scales: Scales = None,
) -> GearCache:
    r"""Start a cache: compress the whole prompt.

    $$X_{1:n} \approx Q + S + L, \qquad \mathrm{rank}\, L \le r$$

    Args:
        keys: keys of the prompt, finite.
        values: values of the prompt, finite, of the shape of the keys.
        bits: code width $b$, in [1, 8].
        outliers: share $s$ of each channel's keys, and of each token's values, stored exactly.
        rank: rank $r$ of the prompt's corrections, at least 0.
        decoded_rank: rank of a decoded block's corrections, at least 0.
        block: decoded tokens $n_b$ compressed at a time, at least 1; its own code has 20 or 64.
        fill: as in `gear_compress`.
        seed: names the block that every power iteration starts from, in [0, 2³² − 1].
        scales: precision of the stored steps and minima, as in `quantise`.

    Returns:
        The cache: one block of keys and one of values, if the prompt has a token, and empty
        buffers.

    Raises:
        TypeError: a tensor is not floating point, values are of another type than keys, or a
            number is not an integer.
        ValueError: a number is NaN or infinite, shapes do not fit each other, a setting is
            outside its range, or a step or minimum overflows.

    Source:
        HEX-GEAR.

    Reading:
        E-H39, E-H40, E-H41.
    """
    cache_errors.cache(keys, values)
    refuse.gear(bits, outliers, rank, seed, scales)
    refuse.streaming(decoded_rank, block)
    empty = GearCache(
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
    return with_block(empty, keys, values, rank) if keys.shape[-2] else empty


def gear_append(
    cache: GearCache,
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    values: Float[Tensor, "*batch kv_heads tokens width"],
) -> GearCache:
    r"""Add decoded tokens to the buffers, and compress them whenever there are $n_b$.

    $$\widehat X_{1:t} \;\Vert\; (Q + S + L)_{t+1:t+n_b}, \qquad \mathrm{rank}\, L \le r_g$$

    Args:
        cache: the cache so far.
        keys: keys of the new tokens, finite.
        values: values of the new tokens, finite, of the shape of the keys.

    Returns:
        The next cache. Tokens may come one by one or many at a time; what was compressed before
        stays as it is.

    Raises:
        TypeError: `cache` is no `GearCache`, or a tensor not floating point or of another type
            than the cache.
        ValueError: a number is NaN or infinite, shapes do not fit each other or the cache, or a
            step or minimum overflows.

    Source:
        HEX-GEAR.

    Reading:
        E-H40: at 2 % a block of 20 tokens has no outlier among the keys of a channel.
    """
    refuse.arrival(cache, GearCache, keys, values)
    for token in range(keys.shape[-2]):
        new = slice(token, token + 1)
        held_keys = torch.cat([cache.residual_keys, keys[..., new, :]], -2)
        held_values = torch.cat([cache.residual_values, values[..., new, :]], -2)
        if held_keys.shape[-2] == cache.block:
            cache = with_block(cache, held_keys, held_values, cache.decoded_rank)
            held_keys, held_values = held_keys[..., :0, :].clone(), held_values[..., :0, :].clone()
        cache = cache._replace(residual_keys=held_keys, residual_values=held_values)
    return cache


def gear_read(
    cache: GearCache, exact_outliers: bool = False
) -> tuple[
    Float[Tensor, "*batch kv_heads tokens width"], Float[Tensor, "*batch kv_heads tokens width"]
]:
    r"""Return the keys and values to attend to, in the order of the tokens.

    $$\widehat X = (Q + S + L)_1 \;\Vert\; \dots \;\Vert\; (Q + S + L)_m \;\Vert\;
      X_{\mathrm{residual}}$$

    Args:
        cache: the cache.
        exact_outliers: as in `gear_reconstruct`.

    Returns:
        Keys and values of all tokens so far, those of the buffers exact.

    Raises:
        TypeError: `cache` is no `GearCache`.

    Source:
        HEX-GEAR.

    Reading:
        E-H42.
    """
    cache_errors.instance("cache", cache, GearCache)
    keys = [gear_reconstruct(block, exact_outliers) for block in cache.key_blocks]
    values = [gear_reconstruct(block, exact_outliers) for block in cache.value_blocks]
    return (
        torch.cat([*keys, cache.residual_keys], -2),
        torch.cat([*values, cache.residual_values], -2),
    )


def with_block(cache: GearCache, keys: Tensor, values: Tensor, rank: int) -> GearCache:
    """Compress a span of its own and put it after the others."""
    settings = cache.bits, cache.outliers, rank, cache.fill, cache.seed, cache.scales
    by_channel = compress("keys", keys, "channel", *settings)
    by_token = compress("values", values, "token", *settings)
    return cache._replace(
        key_blocks=(*cache.key_blocks, by_channel), value_blocks=(*cache.value_blocks, by_token)
    )
