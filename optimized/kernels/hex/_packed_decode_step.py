"""Decoding over a HEX cache that stays in the kernels' layout from one token to the next."""

from torch import Tensor

from optimized import vector
from optimized._dispatch import learning
from optimized.hex_packed_layout import TILE, PackedCache, Room
from optimized.kernels.hex.attention import decode, static_tables, taken
from optimized.vector.hex.decode_step import compress_full_buffer
from reference.contract import checks
from reference.hex.cache import HexCache
from reference.hex.decode_step import HexDecoded


def decode_packed(
    cache: HexCache | PackedCache, queries: Tensor, keys: Tensor, values: Tensor
) -> tuple[Tensor, HexCache | PackedCache]:
    """Return the result of `hex_decode`, with the cache in the kernels' layout if they support it.

    Falls back to PyTorch for several tokens, for gradients, and for blocks of partial tiles, which
    would take more memory in the layout of the kernels.
    """
    fits = queries.shape[-2] == 1 and not learning((queries, keys, values, cache))
    if isinstance(cache, HexCache) and fits and cache.config.block % TILE == 0:
        cache = PackedCache.of(cache) if taken(queries, cache, None) else cache
    if isinstance(cache, HexCache) or not fits:
        whole = cache.cache() if isinstance(cache, PackedCache) else cache
        return vector.hex_decode(whole, queries, keys, values)
    if cache.room is None:
        cache = ready(cache)
    output, cache = decode(queries, keys, values, cache), cache.grown()
    checks.refuse_overflow("queries", cache.rest.residual_mass)
    after = compress_full_buffer(cache)
    if after is not cache:
        after = ready(after, cache.room)
    return HexDecoded(output, after)


def ready(cache: PackedCache, room: Room | None = None) -> PackedCache:
    """Return a cache of which a graph may capture a step: its tables are on the device."""
    static_tables(cache.spans, cache.rest.config)
    return cache.in_room(room)
