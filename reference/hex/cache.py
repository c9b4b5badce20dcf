"""The streaming cache: blocks are compressed as they fill, what is left over stays exact."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from reference.contract.enforce import requires
from reference.contract.preconditions import (
    dtype_of_cache,
    grouped,
    keys_have_heads_and_channels,
    same_dtype,
)
from reference.contract.types import Finite
from reference.hex.compress import HexBlock, hex_compress, hex_mask, hex_reconstruct, restored
from reference.hex.expander import static_mask
from reference.hex.heavy_hitters import attention_mass, h2o_mask
from reference.hex.kcvt import joint_bits
from reference.hex.presets import HexConfig
from reference.precision import widen


class HexCache(NamedTuple):
    """One layer's cache: immutable, each step returns the next one.

    Source:
        HEX-4.1a.
    """

    config: HexConfig
    blocks: tuple[HexBlock, ...]
    residual_keys: Float[Tensor, "*batch kv_heads residual width"]
    residual_values: Float[Tensor, "*batch kv_heads residual width"]
    residual_mass: Float[Tensor, "*batch residual"]
    mass: Float[Tensor, "*batch remembered"]
    """Mass of the compressed tokens, in float32 or float64 as that of the residual buffer is; empty
    in append mode, which has no use for it."""
    original_keys: Float[Tensor, "*batch kv_heads originals width"]
    """Empty but in oracle mode."""
    original_values: Float[Tensor, "*batch kv_heads originals width"]


@requires(keys_have_heads_and_channels, grouped, same_dtype)
def hex_prefill(
    queries: Finite[Tensor, "*batch query_heads tokens width"],
    keys: Finite[Tensor, "*batch kv_heads tokens width"],
    values: Finite[Tensor, "*batch kv_heads tokens width"],
    config: HexConfig,
) -> HexCache:
    r"""Start a cache: compress the largest multiple of a block, hold the rest of the prompt back.

    $$L = n + R, \qquad n = n_b \lfloor L / n_b \rfloor$$

    Args:
        queries: queries of the prompt, of all query heads.
        keys: keys of the prompt.
        values: values of the prompt.
        config: settings, see `HexConfig`.

    Returns:
        The cache: one block of $n$ tokens, if any, and a residual buffer of $R$ tokens in full
        precision.

    Raises:
        ValueError: no mask has the density asked for, or a logit, step or minimum overflows.

    Source:
        HEX-4.1a. In words (§4.1): "The prefix prompt is first partitioned into the largest multiple
        of $n_b$, which is immediately compressed, while any remainder is placed in a residual
        buffer." `carry_recent`, which leaves $r$ tokens more in the buffer, is ours (E-H11).

    Reading:
        E-H5, E-H9, E-H11: one mask for the whole span; the span's mass comes from its own
        queries over exact keys; the last $r$ tokens of every span are kept.
    """
    tokens = compressible_length(config, keys.shape[-2])
    mass = attention_mass(queries[..., :tokens, :], keys[..., :tokens, :])
    span = keys[..., :tokens, :], values[..., :tokens, :]
    blocks = (compress_span(config, *span, mass, tokens, True),) if tokens else ()
    later = attention_mass(queries[..., tokens:, :], keys)
    later[..., :tokens] += mass
    return move_to_blocks(uncompressed_cache(config, keys, values, later), blocks, tokens)


@requires(grouped, dtype_of_cache, same_dtype)
def hex_append(
    cache: HexCache,
    queries: Finite[Tensor, "*batch query_heads tokens width"],
    keys: Finite[Tensor, "*batch kv_heads tokens width"],
    values: Finite[Tensor, "*batch kv_heads tokens width"],
) -> HexCache:
    r"""Add decoded tokens to the residual buffer, and compress it whenever it is full.

    $$\text{append: } \widehat X_{1:t} \,\Vert\, \mathcal{C}(X_{t+1:t+n_b}), \qquad
      \text{full: } \mathcal{C}\bigl(\widehat X_{1:t} \,\Vert\, X_{t+1:t+n_b}\bigr)$$

    Args:
        cache: the cache so far.
        queries: queries of the new tokens, of all query heads.
        keys: keys of the new tokens.
        values: values of the new tokens.

    Returns:
        The next cache. Tokens may come one by one or many at a time.

    Raises:
        ValueError: a logit, step or minimum overflows.

    Source:
        HEX-4.1a, HEX-4.1b, HEX-4.1c. In words (§4.1): "each new compressed block is appended to the
        existing compressed KV cache without reprocessing earlier blocks" and "the entire KV cache
        is recompressed at the end of each block". What `full` compresses, and `period`, are ours
        (E-H17, E-H35).

    Reading:
        E-H9, E-H11, E-H17, E-H35, E-H73: a query's weights run over the restored blocks, the
        residual buffer and itself; `full` recompresses what `hex_read` returns, together with the
        block that fills, which is exact until then. Where `period` blocks may stand side by side,
        those before it have been quantised already.
    """
    while keys.shape[-2]:
        room = buffer_space(cache)
        cache = add_tokens(cache, keys[..., :room, :], values[..., :room, :])
        cache = add_mass(cache, mass_drawn(queries[..., :room, :], cache))
        cache = compress_if_full(cache)
        queries, keys, values = (x[..., room:, :] for x in (queries, keys, values))
    return cache


def compress_if_full(cache: HexCache) -> HexCache:
    """Compress the residual buffer if it is full: a block beside the others, or all anew."""
    if buffer_space(cache):
        return cache
    if cache.config.mode == "append" or len(cache.blocks) < cache.config.period:
        return compress_oldest_block(cache)
    return recompress_as_one_span(cache, cache.config.block)


def compress_oldest_block(cache: HexCache) -> HexCache:
    """Compress the oldest block of the residual buffer, and put it beside the others."""
    size, mass = cache.config.block, cache.residual_mass
    keys, values = cache.residual_keys[..., :size, :], cache.residual_values[..., :size, :]
    first, seen = not cache.blocks, mass.shape[-1]
    block = compress_span(cache.config, keys, values, mass[..., :size], seen, first)
    return move_to_blocks(cache, (*cache.blocks, block), size)


def recompress_as_one_span(cache: HexCache, size: int) -> HexCache:
    """Compress all blocks and the oldest `size` tokens of the residual buffer as one span."""
    tokens, mass = cache.mass.shape[-1] + size, torch.cat([cache.mass, cache.residual_mass], -1)
    keys, values = hex_read(cache)
    if cache.config.mode == "oracle":
        keys = torch.cat([cache.original_keys, cache.residual_keys], -2)
        values = torch.cat([cache.original_values, cache.residual_values], -2)
    keys, values, seen = keys[..., :tokens, :], values[..., :tokens, :], mass.shape[-1]
    block = compress_span(cache.config, keys, values, mass[..., :tokens], seen, True)
    return move_to_blocks(cache, (block,), size)


def compress_span(
    config: HexConfig, keys: Tensor, values: Tensor, mass: Tensor, seen: int, first: bool
) -> HexBlock:
    """Compress a span whose first token was seen by `seen` queries, each later one by one less."""
    kv_heads, tokens, width = keys.shape[-3:]
    if config.normalize:
        mass = mass / torch.arange(seen, seen - tokens, -1, dtype=mass.dtype, device=mass.device)
    windowed = not config.carry_recent and (first or config.recent_per_block)
    recent = config.recent if windowed else 0
    dynamic = h2o_mask(mass, config.heavy, recent, config.outside_recent)
    static = static_mask(config, tokens, kv_heads * width).to(keys.device)
    return compress_sides(config, keys, values, static, dynamic)


def compress_sides(
    config: HexConfig,
    keys: Tensor,
    values: Tensor,
    static: Tensor,
    dynamic: Tensor,
    compress: Callable[..., HexBlock] = hex_compress,
) -> HexBlock:
    """Compress a span: the keys at `bits`, the values at `value_bits`."""
    span, settings = (keys, values, static, dynamic), (config.value_group, config.scales)
    block = compress(*span, config.bits, *settings)
    both = joint_bits(config.bits, config.value_bits)
    if not isinstance(both, tuple):
        return block
    other = compress(*span, both[1], *settings)
    return block._replace(
        bits=both,
        value_words=other.value_words,
        value_steps=other.value_steps,
        value_minima=other.value_minima,
    )


def move_to_blocks(cache: HexCache, blocks: tuple[HexBlock, ...], size: int) -> HexCache:
    """Return the cache with these blocks, which hold the oldest `size` tokens of its buffer."""
    keys, values, mass = cache.residual_keys, cache.residual_values, cache.residual_mass
    remembered = slice(0 if cache.config.mode == "append" else size)
    originals = slice(size if cache.config.mode == "oracle" else 0)
    return HexCache(
        cache.config,
        blocks,
        keys[..., size:, :].clone(),
        values[..., size:, :].clone(),
        mass[..., size:].clone(),
        torch.cat([cache.mass, mass[..., remembered]], -1),
        torch.cat([cache.original_keys, keys[..., originals, :]], -2),
        torch.cat([cache.original_values, values[..., originals, :]], -2),
    )


def remembers_mass(cache: HexCache) -> None:
    """Refuse a cache in append mode, which remembers no mass."""
    if cache.config.mode == "append":
        raise ValueError("cache must be in mode 'full' or 'oracle', got 'append'")


@requires(remembers_mass)
def hex_recompress(cache: HexCache) -> HexCache:
    r"""Compress everything but the residual buffer anew, as one span.

    $$\mathcal{C}(\widehat X_{1:t}) \quad \text{(full)}, \qquad
      \mathcal{C}(X_{1:t}) \quad \text{(oracle)}$$

    Args:
        cache: a cache in full or oracle mode.

    Returns:
        The cache with one block. In oracle mode it is the block that compressing all tokens at
        once, with the same mass, would have made.

    Source:
        HEX-4.1c. In words (§4.1): "the entire KV cache is recompressed at the end of each block".
        That `full` compresses restored numbers, and `oracle`, are ours (E-H17).

    Reading:
        E-H9, E-H17, E-H73: heavy hitters by the mass since each token's arrival; the originals are
        gone, so `full` quantises what was quantised before, as `hex_read` returns it.
    """
    return recompress_as_one_span(cache, 0) if cache.blocks else cache


def hex_read(
    cache: HexCache,
) -> tuple[
    Float[Tensor, "*batch kv_heads tokens width"], Float[Tensor, "*batch kv_heads tokens width"]
]:
    r"""Return the keys and values that a cache stands for, in the order of the tokens.

    $$\widehat X = \widehat X_{1} \,\Vert\, \dots \,\Vert\, \widehat X_{m} \,\Vert\,
      X_{\mathrm{residual}}$$

    Args:
        cache: the cache.

    Returns:
        Keys and values of all tokens so far, rounded to the dtype of the cache; those of the
        residual buffer are exact.

    Source:
        HEX-4.1a. In words (§4.1): "each new compressed block is appended to the existing compressed
        KV cache" and "Tokens inside the residual buffer are maintained in full precision (fp16)
        until the block fills".

    Reading:
        E-H73: attention reads them before they are rounded.
    """
    return read_blocks(cache, hex_reconstruct)


def read_unrounded(cache: HexCache) -> tuple[Tensor, Tensor]:
    """Return the keys and values that queries attend to: those of `hex_read`, unrounded."""
    return read_blocks(cache, restored)


def read_blocks(
    cache: HexCache, restore: Callable[[HexBlock, Tensor], tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    """Return the keys and values of each block, restored, then those of the residual buffer."""
    keys, values = [], []
    for block in cache.blocks:
        channels = block.key_steps.shape[-2:].numel()
        static = static_mask(cache.config, block.dynamic.shape[-1], channels)
        span = restore(block, static.to(block.dynamic.device))
        keys.append(span[0])
        values.append(span[1])
    return (
        torch.cat([*keys, cache.residual_keys], -2),
        torch.cat([*values, cache.residual_values], -2),
    )


def mass_drawn(queries: Tensor, cache: HexCache) -> Tensor:
    """Return the attention that the last tokens' queries pay to each token of a cache."""
    return attention_mass(queries, read_unrounded(cache)[0])


def add_tokens(cache: HexCache, keys: Tensor, values: Tensor) -> HexCache:
    """Add tokens that have drawn no attention yet to the residual buffer."""
    none = cache.residual_mass.new_zeros(*cache.residual_mass.shape[:-1], keys.shape[-2])
    return cache._replace(
        residual_keys=torch.cat([cache.residual_keys, keys], -2),
        residual_values=torch.cat([cache.residual_values, values], -2),
        residual_mass=torch.cat([cache.residual_mass, none], -1),
    )


def add_mass(cache: HexCache, mass: Tensor) -> HexCache:
    """Add the attention that each token draws to its mass, where that is remembered."""
    compressed = mass.shape[-1] - cache.residual_mass.shape[-1]
    remembered = cache.mass.shape[-1]
    return cache._replace(
        residual_mass=cache.residual_mass + mass[..., compressed:],
        mass=cache.mass + mass[..., :remembered],
    )


def uncompressed_cache(config: HexConfig, keys: Tensor, values: Tensor, mass: Tensor) -> HexCache:
    """Return a cache whose residual buffer holds the whole prompt."""
    none = mass[..., :0], keys[..., :0, :], values[..., :0, :]
    return HexCache(config, (), keys, values, mass, *none)


def buffer_space(cache: HexCache) -> int:
    """Return how many tokens the residual buffer takes before a block leaves it."""
    return cache.config.block + carried_tokens(cache.config) - cache.residual_keys.shape[-2]


def carried_tokens(config: HexConfig) -> int:
    """Return how many tokens stay in the residual buffer when a block leaves it."""
    return config.recent if config.carry_recent else 0


def compressible_length(config: HexConfig, tokens: int) -> int:
    """Return how many tokens of a prompt are compressed: whole blocks."""
    return max(0, tokens - carried_tokens(config)) // config.block * config.block


def hex_store(
    keys: Tensor,
    values: Tensor,
    scores: Tensor,
    marked: Tensor,
    valid: Tensor | None,
    config: HexConfig,
) -> HexCache:
    """Keep the marked tokens of the span exactly, quantise its rest, hold the others back."""
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
        blocks = (compress_sides(config, blank, values[..., :span, :], static, marked),)
    return move_to_blocks(uncompressed_cache(config, keys, values, mass), blocks, span)


def neutral_padding(keys: Tensor, coded: Tensor, real: Tensor) -> Tensor:
    """Put into the padding of each channel a number that leaves its range as it is."""
    lowest = keys.masked_fill(~coded, torch.inf).amin(-2, keepdim=True)
    return torch.where(real, keys, torch.where(coded.any(-2, keepdim=True), lowest, 0))
