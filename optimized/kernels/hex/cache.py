"""The streaming cache, rebound to kernels that quantise, restore and sum attention."""

from optimized import vector
from optimized._rebind import rebind
from optimized.kernels.hex.compress import hex_compress, hex_reconstruct
from optimized.kernels.hex.heavy_hitters import attention_mass
from optimized.vector.hex.cache import compress_residual as torch_compress_residual
from optimized.vector.hex.cache import compress_span as torch_compress_span
from optimized.vector.hex.cache import hex_store as torch_hex_store
from optimized.vector.hex.cache import recompress as torch_recompress
from optimized.vector.hex.cache import settled as torch_settled

compress_span = rebind(torch_compress_span, hex_compress=hex_compress)
hex_store = rebind(torch_hex_store, hex_compress=hex_compress)
hex_read = rebind(vector.hex_read, hex_reconstruct=hex_reconstruct)
recompress = rebind(torch_recompress, compress_span=compress_span, hex_read=hex_read)
compress_residual = rebind(torch_compress_residual, compress_span=compress_span)
settled = rebind(torch_settled, recompress=recompress, compress_residual=compress_residual)
hex_prefill = rebind(vector.hex_prefill, compress_span=compress_span, attention_mass=attention_mass)
hex_append = rebind(vector.hex_append, settled=settled)
hex_recompress = rebind(vector.hex_recompress, recompress=recompress)
