"""HubKV's compressors, rebound to kernels."""

from optimized import vector
from optimized._rebind import rebind
from optimized.kernels.compress import compress, select

hubkv_select = rebind(vector.hubkv_select, select=select)
hubkv_compress = rebind(vector.hubkv_compress, compress=compress)
