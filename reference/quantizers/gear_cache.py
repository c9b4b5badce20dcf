"""GEAR while decoding: the prompt at once, then blocks of a few tokens as they fill."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from reference.contract.enforce import requires
from reference.contract.preconditions import (
    dtype_of_cache,
    keys_have_heads_and_channels,
    same_dtype,
)
from reference.contract.types import Bits, BothBits, Finite, Positive, Ratio, Scales, Seed, Whole
from reference.hex.kcvt import bits_of_both, joint_bits
from reference.quantizers.gear import GearBlock, compress_side, gear_reconstruct


class GearCache(NamedTuple):
    """One layer's cache: immutable, each step returns the next one.

    Source:
        HEX-GEAR.
    """

    bits: BothBits
    outliers: Ratio
    decoded_rank: Whole
    block: Positive
    fill: bool
    seed: Seed
    scales: Scales
    key_blocks: tuple[GearBlock, ...]
    value_blocks: tuple[GearBlock, ...]
    residual_keys: Float[Tensor, "*batch kv_heads residual width"]
    residual_values: Float[Tensor, "*batch kv_heads residual width"]


@requires(keys_have_heads_and_channels, same_dtype)
def gear_prefill(
    keys: Finite[Tensor, "*batch kv_heads tokens width"],
    values: Finite[Tensor, "*batch kv_heads tokens width"],
    bits: Bits = 4,
    outliers: Ratio = 0.02,
    rank: Whole = 4,
    decoded_rank: Whole = 2,
    block: Positive = 20,
    fill: bool = True,
    seed: Seed = 0,
    scales: Scales = None,
    value_bits: Bits | None = None,
) -> GearCache:
    r"""Start a cache: compress the whole prompt.

    $$X_{1:n} \approx Q + S + L, \qquad \mathrm{rank}\, L \le r$$

    Args:
        keys: keys of the prompt.
        values: values of the prompt.
        bits: code width $b$.
        outliers: share $s$ of each channel's keys, and of each token's values, stored exactly.
        rank: rank $r$ of the prompt's corrections.
        decoded_rank: rank of a decoded block's corrections.
        block: decoded tokens $n_b$ compressed at a time; its own code has 20 or 64.
        fill: as in `gear_compress`.
        seed: names the block that every power iteration starts from.
        scales: precision of the stored steps and minima, as in `quantise`.
        value_bits: code width of values, by default that of keys.

    Returns:
        The cache: one block of keys and one of values, if the prompt has a token, and empty
        buffers.

    Raises:
        ValueError: a step or minimum overflows the precision it is stored in.

    Source:
        HEX-GEAR. From elsewhere: Kang et al.; the paper names GEAR and does not define it (E-H39,
        E-H40, E-H41). Ours: `value_bits`.

    Reading:
        E-H39, E-H40, E-H41.
    """
    empty = GearCache(
        bits=joint_bits(bits, value_bits),
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
    return with_block(empty, keys, values, rank, compress_side) if keys.shape[-2] else empty


@requires(dtype_of_cache, same_dtype)
def gear_append(
    cache: GearCache,
    keys: Finite[Tensor, "*batch kv_heads tokens width"],
    values: Finite[Tensor, "*batch kv_heads tokens width"],
) -> GearCache:
    r"""Add decoded tokens to the buffers, and compress them whenever there are $n_b$.

    $$\widehat X_{1:t} \;\Vert\; (Q + S + L)_{t+1:t+n_b}, \qquad \mathrm{rank}\, L \le r_g$$

    Args:
        cache: the cache so far.
        keys: keys of the new tokens.
        values: values of the new tokens.

    Returns:
        The next cache. Tokens may come one by one or many at a time; what was compressed before
        stays as it is.

    Raises:
        ValueError: a step or minimum overflows the precision it is stored in.

    Source:
        HEX-GEAR. From elsewhere: Kang et al.; the paper names GEAR and does not define it (E-H40).

    Reading:
        E-H40: at 2 % a block of 20 tokens has no outlier among the keys of a channel.
    """
    return with_tokens(cache, keys, values, compress_side)


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

    Source:
        HEX-GEAR. From elsewhere: Kang et al.; the paper names GEAR and does not define it (E-H42).

    Reading:
        E-H42.
    """
    keys = [gear_reconstruct(block, exact_outliers) for block in cache.key_blocks]
    values = [gear_reconstruct(block, exact_outliers) for block in cache.value_blocks]
    return (
        torch.cat([*keys, cache.residual_keys], -2),
        torch.cat([*values, cache.residual_values], -2),
    )


def with_tokens(
    cache: GearCache, keys: Tensor, values: Tensor, compress: Callable[..., GearBlock]
) -> GearCache:
    """Return a cache with more tokens, compressed by `compress_side` or one like it."""
    held_keys = torch.cat([cache.residual_keys, keys], -2)
    held_values = torch.cat([cache.residual_values, values], -2)
    full = held_keys.shape[-2] // cache.block * cache.block
    for start in range(0, full, cache.block):
        span = slice(start, start + cache.block)
        new = held_keys[..., span, :], held_values[..., span, :]
        cache = with_block(cache, *new, cache.decoded_rank, compress)
    return cache._replace(
        residual_keys=held_keys[..., full:, :].clone(),
        residual_values=held_values[..., full:, :].clone(),
    )


def with_block(
    cache: GearCache, keys: Tensor, values: Tensor, rank: int, compress: Callable[..., GearBlock]
) -> GearCache:
    """Compress a span of its own and put it after the others."""
    settings = cache.outliers, rank, cache.fill, cache.seed, cache.scales
    key_bits, value_bits = bits_of_both(cache.bits)
    by_channel = compress("keys", keys, "channel", key_bits, *settings)
    by_token = compress("values", values, "token", value_bits, *settings)
    return cache._replace(
        key_blocks=(*cache.key_blocks, by_channel), value_blocks=(*cache.value_blocks, by_token)
    )
