"""GraphKV's compressors, rebound to kernels."""

from optimized import vector
from optimized._rebind import rebind
from optimized.kernels.compress import compress, select

graphkv_select = rebind(vector.graphkv_select, select=select)
graphkv_compress = rebind(vector.graphkv_compress, compress=compress)
