"""The streaming cache: functions of the specification, rebound to vectorised ones."""

import reference
from optimized._rebind import rebind
from optimized.vector.hex.attention import mass_drawn
from optimized.vector.hex.compress import hex_compress, hex_mask, hex_reconstruct
from optimized.vector.hex.expander import static_mask
from optimized.vector.hex.heavy_hitters import attention_mass, h2o_mask
from reference.hex import cache

compress_span = rebind(
    cache.compress_span, hex_compress=hex_compress, static_mask=static_mask, h2o_mask=h2o_mask
)
hex_store = rebind(
    cache.hex_store, hex_compress=hex_compress, hex_mask=hex_mask, static_mask=static_mask
)
read_blocks = rebind(cache.read_blocks, static_mask=static_mask)
hex_read = rebind(reference.hex_read, hex_reconstruct=hex_reconstruct, read_blocks=read_blocks)
recompress_as_one_span = rebind(
    cache.recompress_as_one_span, compress_span=compress_span, hex_read=hex_read
)
compress_oldest_block = rebind(cache.compress_oldest_block, compress_span=compress_span)
compress_if_full = rebind(
    cache.compress_if_full,
    recompress_as_one_span=recompress_as_one_span,
    compress_oldest_block=compress_oldest_block,
)
hex_prefill = rebind(
    reference.hex_prefill, compress_span=compress_span, attention_mass=attention_mass
)
hex_append = rebind(reference.hex_append, mass_drawn=mass_drawn, compress_if_full=compress_if_full)
hex_recompress = rebind(reference.hex_recompress, recompress_as_one_span=recompress_as_one_span)
