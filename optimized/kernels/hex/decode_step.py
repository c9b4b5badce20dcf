"""A decoding step, rebound to kernels."""

from optimized import vector
from optimized._rebind import rebind
from optimized.kernels.hex.attention import hex_attention
from optimized.kernels.hex.cache import compress_if_full

hex_decode = rebind(
    vector.hex_decode, hex_attention=hex_attention, compress_if_full=compress_if_full
)
