"""A step of decoding: the attention that makes the output is what heavy hitters are chosen by."""

import torch
from torch import Tensor

from optimized.vector.hex.attention import hex_attention
from optimized.vector.hex.cache import settled
from reference import errors
from reference.hex.cache import HexCache, arrived, buffer_space, weighed
from reference.hex.decode import HexDecoded


def hex_decode(cache: HexCache, queries: Tensor, keys: Tensor, values: Tensor) -> HexDecoded:
    output, start, length = torch.empty_like(queries), 0, keys.shape[-2]
    while start < length:
        stop = min(length, start + buffer_space(cache))
        asked, *new = (x[..., start:stop, :] for x in (queries, keys, values))
        cache = arrived(cache, *new)
        output[..., start:stop, :], mass = hex_attention(asked, cache, None, True, None, True)
        assert mass is not None
        errors.in_range("queries", mass)
        cache, start = settled(weighed(cache, mass)), stop
    return HexDecoded(output, cache)
