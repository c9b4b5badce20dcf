"""The sensitivity study, rebound to kernels."""

from optimized import vector
from optimized._rebind import rebind
from optimized.kernels.hex.cache import hex_append, hex_prefill, hex_read
from optimized.vector.hex.sensitivity import measure_sensitivity as torch_measure_sensitivity

measure_sensitivity = rebind(
    torch_measure_sensitivity, hex_prefill=hex_prefill, hex_append=hex_append, hex_read=hex_read
)
sensitivity = rebind(vector.sensitivity, measure_sensitivity=measure_sensitivity)
