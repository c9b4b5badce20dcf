"""The streaming cache: the specification's own text over vectorised leaves."""

from torch import Tensor

import reference
from optimized._composed import composed
from optimized.vector.hex.attention import mass_drawn
from reference._validation import checks
from reference.hex import cache
from reference.hex.cache import HexCache, arrived, weighed


def hold(cache: HexCache, queries: Tensor, keys: Tensor, values: Tensor) -> HexCache:
    cache = arrived(cache, keys, values)
    mass = mass_drawn(queries, cache)
    checks.in_range("queries", mass)
    return weighed(cache, mass)


hex_prefill = composed(reference.hex_prefill)
hex_append = composed(reference.hex_append)
hex_recompress = composed(reference.hex_recompress)
hex_read = composed(reference.hex_read)
hex_store = composed(cache.hex_store)
settled = composed(cache.settled)
