"""The streaming cache: functions of the specification, rebound to vectorised ones."""

from torch import Tensor

import reference
from optimized._rebind import rebind
from optimized.vector.hex.attention import mass_drawn
from optimized.vector.hex.compress import hex_compress, hex_mask, hex_reconstruct
from optimized.vector.hex.expander import static_mask
from optimized.vector.hex.heavy_hitters import attention_mass, h2o_mask
from reference._validation import checks
from reference.hex import cache
from reference.hex.cache import HexCache, with_added_mass, with_new_tokens


def append_and_weigh(cache: HexCache, queries: Tensor, keys: Tensor, values: Tensor) -> HexCache:
    cache = with_new_tokens(cache, keys, values)
    mass = mass_drawn(queries, cache)
    checks.refuse_overflow("queries", mass)
    return with_added_mass(cache, mass)


compress_span = rebind(
    cache.compress_span, hex_compress=hex_compress, static_mask=static_mask, h2o_mask=h2o_mask
)
hex_store = rebind(
    cache.hex_store, hex_compress=hex_compress, hex_mask=hex_mask, static_mask=static_mask
)
read = rebind(cache.read, static_mask=static_mask)
hex_read = rebind(reference.hex_read, hex_reconstruct=hex_reconstruct, read=read)
recompress_all = rebind(cache.recompress_all, compress_span=compress_span, hex_read=hex_read)
compress_oldest_block = rebind(cache.compress_oldest_block, compress_span=compress_span)
compress_if_full = rebind(
    cache.compress_if_full,
    recompress_all=recompress_all,
    compress_oldest_block=compress_oldest_block,
)
hex_prefill = rebind(
    reference.hex_prefill, compress_span=compress_span, attention_mass=attention_mass
)
hex_append = rebind(
    reference.hex_append, append_and_weigh=append_and_weigh, compress_if_full=compress_if_full
)
hex_recompress = rebind(reference.hex_recompress, recompress_all=recompress_all)
