"""KIVI: keys by channel in groups of tokens, values by token in groups of channels."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int32
from torch import Tensor

from reference.contract.enforce import requires
from reference.contract.preconditions import (
    divides,
    dtype_of_cache,
    keys_have_heads_and_channels,
    multiple_of,
    same_dtype,
)
from reference.contract.types import Bits, BothBits, Finite, Positive, Scales
from reference.hex.kcvt import (
    bits_of_both,
    code,
    dequantise,
    joint_bits,
    scale_dtype,
    transposed,
)
from reference.hex.packing import pack_bits, unpack_bits, word_count


class KiviCache(NamedTuple):
    """One layer's cache: immutable, each step returns the next one.

    A block is a full buffer of keys; its codes are one stream of bits a channel.

    Source:
        HEX-KIVI.
    """

    bits: BothBits
    group: Positive
    residual: Positive
    scales: Scales
    key_words: Int32[Tensor, "*batch kv_heads blocks width key_words"]
    key_steps: Float[Tensor, "*batch kv_heads blocks width key_groups"]
    key_minima: Float[Tensor, "*batch kv_heads blocks width key_groups"]
    value_words: Int32[Tensor, "*batch kv_heads coded value_words"]
    value_steps: Float[Tensor, "*batch kv_heads coded value_groups"]
    value_minima: Float[Tensor, "*batch kv_heads coded value_groups"]
    residual_keys: Float[Tensor, "*batch kv_heads held width"]
    residual_values: Float[Tensor, "*batch kv_heads recent width"]


def dividing(group: int, residual: int, width: int) -> None:
    """Refuse a group that does not divide the buffer and the width of a head."""
    multiple_of("residual", residual, "group", group)
    divides("group", group, "width", width)


@requires(keys_have_heads_and_channels, same_dtype, dividing)
def kivi_prefill(
    keys: Finite[Tensor, "*batch kv_heads tokens width"],
    values: Finite[Tensor, "*batch kv_heads tokens width"],
    bits: Bits = 2,
    group: Positive = 32,
    residual: Positive = 32,
    scales: Scales = None,
    value_bits: Bits | None = None,
) -> KiviCache:
    r"""Start a cache: a prompt is so many tokens appended to nothing.

    $$c = \mathrm{round}\Bigl(\frac{X - \min_g X}{\Delta_g}\Bigr), \qquad
      \Delta_g = \frac{\max_g X - \min_g X}{2^b - 1}$$

    Args:
        keys: keys of the prompt.
        values: values of the prompt.
        bits: code width $b$.
        group: members $g$ of a group: tokens of one key channel, channels of one value token and
            head; a divisor of the width.
        residual: tokens $R$ in full precision, a multiple of `group`; its own code has 32 or 128.
        scales: precision of the stored steps and minima, as in `quantise`.
        value_bits: code width of values, by default that of keys.

    Returns:
        The cache. Of $n$ tokens the keys of the last $n \bmod R$ and the values of the last
        $\min(n, R)$ are exact.

    Raises:
        ValueError: a step or minimum overflows the precision it is stored in.

    Source:
        HEX-KIVI. From elsewhere: Liu et al.; the paper names KIVI and does not define it (E-H37,
        E-H38, E-H70). Ours: `value_bits`.

    Reading:
        E-H37, E-H38, E-H70: whether codes are clamped before or after rounding makes no difference;
        keys and values leave their buffers at different times; the authors' code computes in the
        type of the cache.
    """
    empty = empty_cache(keys, values, bits, group, residual, scales, value_bits)
    return kivi_append(empty, keys, values)


@requires(dtype_of_cache, same_dtype)
def kivi_append(
    cache: KiviCache,
    keys: Finite[Tensor, "*batch kv_heads tokens width"],
    values: Finite[Tensor, "*batch kv_heads tokens width"],
) -> KiviCache:
    r"""Add tokens: all buffered keys are quantised when there are $R$, a value when it is older.

    $$n_K = R \lfloor n / R \rfloor, \qquad n_V = \max(0, n - R)$$

    Args:
        cache: the cache so far.
        keys: keys of the new tokens.
        values: values of the new tokens.

    Returns:
        The next cache, of $n_K$ quantised keys and $n_V$ quantised values. Tokens may come one by
        one or many at a time; what was quantised before stays as it is.

    Raises:
        ValueError: a step or minimum overflows the precision it is stored in.

    Source:
        HEX-KIVI. From elsewhere: Liu et al.; the paper names KIVI and does not define it (E-H38).

    Reading:
        E-H38.
    """
    return with_tokens(cache, keys, values, quantise_in_groups)


def kivi_read(
    cache: KiviCache,
) -> tuple[
    Float[Tensor, "*batch kv_heads tokens width"], Float[Tensor, "*batch kv_heads tokens width"]
]:
    r"""Return the keys and values to attend to, in the order of the tokens.

    $$\widehat X = c\, \Delta_g + \min_g X \;\Vert\; X_{\mathrm{residual}}$$

    Args:
        cache: the cache.

    Returns:
        Keys and values of all tokens so far, those of the buffers exact.

    Source:
        HEX-KIVI. From elsewhere: Liu et al.; the paper names KIVI and does not define it.
    """
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


def empty_cache(
    keys: Tensor,
    values: Tensor,
    bits: int,
    group: int,
    residual: int,
    scales: Scales,
    value_bits: int | None,
) -> KiviCache:
    """Return a cache without a token, of the type and the heads of keys and values."""
    heads, width = keys.shape[:-2], keys.shape[-1]
    words = keys.new_zeros(*heads, 0, dtype=torch.int32)
    stored = words.new_zeros(*heads, 0, dtype=scale_dtype(keys.dtype, scales))
    return KiviCache(
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


def with_tokens(
    cache: KiviCache, keys: Tensor, values: Tensor, quantise: Callable[..., tuple[Tensor, ...]]
) -> KiviCache:
    """Return a cache with more tokens, quantised by `quantise_in_groups` or one like it."""
    held_keys = torch.cat([cache.residual_keys, keys], -2)
    held_values = torch.cat([cache.residual_values, values], -2)
    full = held_keys.shape[-2] // cache.residual * cache.residual
    old = max(0, held_values.shape[-2] - cache.residual)
    key_bits, value_bits = bits_of_both(cache.bits)
    if full:
        buffers = held_keys[..., :full, :].unflatten(-2, (-1, cache.residual))
        words, steps, minima = quantise("keys", transposed(buffers), key_bits, cache)
        cache = cache._replace(
            key_words=torch.cat([cache.key_words, words], -3),
            key_steps=torch.cat([cache.key_steps, steps], -3),
            key_minima=torch.cat([cache.key_minima, minima], -3),
        )
    if old:
        span = held_values[..., :old, :]
        words, steps, minima = quantise("values", span, value_bits, cache)
        cache = cache._replace(
            value_words=torch.cat([cache.value_words, words], -2),
            value_steps=torch.cat([cache.value_steps, steps], -2),
            value_minima=torch.cat([cache.value_minima, minima], -2),
        )
    return cache._replace(
        residual_keys=held_keys[..., full:, :].clone(),
        residual_values=held_values[..., old:, :].clone(),
    )


def quantise_in_groups(
    name: str, rows: Tensor, bits: int, cache: KiviCache
) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows' codes, each row's in one stream, and the steps and minima of their groups."""
    x = by_group(rows, cache.group)
    block = code(name, x, bits, torch.zeros_like(x, dtype=torch.bool), cache.scales)
    return pack_bits(block.codes.flatten(-2), bits), block.steps, block.minima


def by_group(rows: Tensor, group: int) -> Tensor:
    """Cut the last axis into groups."""
    return rows.unflatten(-1, (rows.shape[-1] // group, group))
