"""The streaming cache: the specification's own text over vectorised leaves."""

import reference
from optimized._composed import composed
from reference.hex import cache

hex_prefill = composed(reference.hex_prefill)
hex_append = composed(reference.hex_append)
hex_recompress = composed(reference.hex_recompress)
hex_read = composed(reference.hex_read)
hex_store = composed(cache.hex_store)
static_mask = composed(cache.static_mask)
