"""The streaming cache, rebound to kernels that quantise, restore and sum attention."""

from optimized import vector
from optimized._rebind import rebind
from optimized.kernels.hex.compress import hex_compress, hex_reconstruct
from optimized.kernels.hex.heavy_hitters import attention_mass
from optimized.vector.hex.cache import compress_if_full as torch_compress_if_full
from optimized.vector.hex.cache import compress_oldest_block as torch_compress_oldest_block
from optimized.vector.hex.cache import compress_span as torch_compress_span
from optimized.vector.hex.cache import hex_store as torch_hex_store
from optimized.vector.hex.cache import recompress_as_one_span as torch_recompress_as_one_span

compress_span = rebind(torch_compress_span, hex_compress=hex_compress)
hex_store = rebind(torch_hex_store, hex_compress=hex_compress)
hex_read = rebind(vector.hex_read, hex_reconstruct=hex_reconstruct)
recompress_as_one_span = rebind(
    torch_recompress_as_one_span, compress_span=compress_span, hex_read=hex_read
)
compress_oldest_block = rebind(torch_compress_oldest_block, compress_span=compress_span)
compress_if_full = rebind(
    torch_compress_if_full,
    recompress_as_one_span=recompress_as_one_span,
    compress_oldest_block=compress_oldest_block,
)
hex_prefill = rebind(vector.hex_prefill, compress_span=compress_span, attention_mass=attention_mass)
hex_append = rebind(vector.hex_append, compress_if_full=compress_if_full)
hex_recompress = rebind(vector.hex_recompress, recompress_as_one_span=recompress_as_one_span)
