"""GraphKV end to end, rebound to vectorised selection and compression."""

import reference
from optimized._rebind import rebind
from optimized.vector.compress import compress, select

graphkv_select = rebind(reference.graphkv_select, select=select)
graphkv_compress = rebind(reference.graphkv_compress, compress=compress)
