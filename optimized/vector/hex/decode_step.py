"""A decoding step: one attention pass yields the output and the mass that ranks heavy hitters."""

from typing import Any

import torch
from torch import Tensor

from optimized._dispatch import learning
from optimized.vector.hex.attention import (
    attend,
    attend_once,
    hex_attention,
    multiplies_codes,
    needs_gradients,
)
from optimized.vector.hex.cache import compress_if_full, compress_oldest_block
from optimized.vector.hex.stacked_cache import StackedCache
from reference.contract import checks
from reference.hex.cache import HexCache, add_mass, add_tokens, buffer_space
from reference.hex.decode_step import HexDecoded
from reference.precision import widest


def hex_decode(cache: HexCache, queries: Tensor, keys: Tensor, values: Tensor) -> HexDecoded:
    output, start, length = torch.empty_like(queries), 0, keys.shape[-2]
    while start < length:
        stop = min(length, start + buffer_space(cache))
        chunk, *new = (x[..., start:stop, :] for x in (queries, keys, values))
        cache = add_tokens(cache, *new)
        read = hex_attention(chunk, cache, None, True, None, True, False)
        output[..., start:stop, :], mass, _ = read
        assert mass is not None
        checks.refuse_overflow("queries", mass)
        cache, start = compress_if_full(add_mass(cache, mass)), stop
    return HexDecoded(output, cache)


def decode_in_layout(
    cache: HexCache | StackedCache, queries: Tensor, keys: Tensor, values: Tensor
) -> tuple[Tensor, HexCache | StackedCache]:
    """Return the result of `hex_decode`; the cache keeps its layout from one token to the next."""
    exact = widest(queries, keys)
    anew = queries.shape[-2] != 1 or needs_gradients(queries, cache)
    anew |= learning((keys, values))
    if isinstance(cache, HexCache) and not anew and multiplies_codes(cache, exact):
        cache = StackedCache.of(cache)
    if isinstance(cache, HexCache) or anew:
        whole = cache.cache() if isinstance(cache, StackedCache) else cache
        return hex_decode(whole, queries, keys, values)
    cache = cache._replace(rest=add_tokens(cache.rest, keys, values))
    if cache.rest.mass.shape[-1]:
        output, mass, _ = attend(queries, cache, None, True, None)
    else:
        output, mass = attend_once(queries, cache)
    checks.refuse_overflow("queries", mass)
    return output, compress_full_buffer(cache._replace(rest=add_mass(cache.rest, mass)))


def compress_full_buffer(cache: Any) -> Any:
    """Return a cache in either layout after compressing its residual buffer, if that is full."""
    rest = cache.rest
    if buffer_space(rest):
        return cache
    if rest.config.mode == "append" or cache.blocks < rest.config.period:
        # compress_oldest_block only tests whether there are blocks, so numbers can replace them
        after = compress_oldest_block(rest._replace(blocks=tuple(range(cache.blocks))))
        return cache.followed(after.blocks[-1], after._replace(blocks=()))
    return type(cache).of(compress_if_full(cache.cache()))
