"""Decoding over a HEX cache that stays in the kernels' layout from one token to the next."""

from typing import Any

from torch import Tensor

from optimized import kernels, vector
from optimized._composed import composed
from optimized.kernels.hex.attention import attended, taken
from optimized.layout import TILE, PackedCache
from reference.hex import cache as streaming
from reference.hex.cache import HexCache, arrived, buffer_space, weighed
from reference.hex.decode import HexDecoded

compress_residual = composed(streaming.compress_residual)
settled = composed(streaming.settled)


def decoded(
    cache: HexCache | PackedCache, queries: Tensor, keys: Tensor, values: Tensor
) -> tuple[Tensor, HexCache | PackedCache]:
    """Return what `hex_decode` does; the cache is laid out as soon as kernels are made for it.

    Blocks of other than whole tiles, which would take more memory laid out than as they are, and
    several tokens at a time are a matter of the vectorised body.
    """
    if isinstance(cache, HexCache) and cache.config.block % TILE == 0:
        cache = PackedCache.of(cache) if taken(queries[..., -1:, :], cache, None) else cache
    if isinstance(cache, HexCache) or queries.shape[-2] != 1:
        whole = cache.cache() if isinstance(cache, PackedCache) else cache
        return vector.hex_decode(whole, queries, keys, values)
    cache = cache._replace(rest=arrived(cache.rest, keys, values))
    remembered = cache.rest.mass.shape[-1] > 0
    output, mass = attended(queries, cache, mass=True, of_all=remembered)
    assert mass is not None
    return HexDecoded(output, full(cache._replace(rest=weighed(cache.rest, mass))))


def full(cache: PackedCache) -> PackedCache:
    """Compress a block if the residual buffer is full, and add it in place if it stands alone."""
    rest: Any = cache.rest
    if buffer_space(rest):
        return cache
    if rest.config.mode == "append" or cache.blocks < rest.config.period:
        # what stands for the blocks before this one is only asked whether there are some
        after = kernels.over_them(compress_residual)(rest._replace(blocks=cache.runs))
        return cache.followed(after.blocks[-1], after._replace(blocks=()))
    return PackedCache.of(kernels.over_them(settled)(cache.cache()))
