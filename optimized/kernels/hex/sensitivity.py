"""The sensitivity study, rebound to kernels."""

from optimized import vector
from optimized._rebind import rebind
from optimized.kernels.hex.cache import hex_append, hex_prefill, hex_read
from optimized.vector.hex.sensitivity import stream as torch_stream

stream = rebind(torch_stream, hex_prefill=hex_prefill, hex_append=hex_append, hex_read=hex_read)
sensitivity = rebind(vector.sensitivity, stream=stream)
