"""GEAR's streaming cache, rebound to vectorised spans."""

import reference
from optimized._rebind import rebind
from optimized.vector.quantizers.gear import compress_side, gear_reconstruct
from reference.quantizers import gear_cache

with_block = rebind(gear_cache.with_block, compress_side=compress_side)
gear_prefill = rebind(reference.gear_prefill, with_block=with_block)
gear_append = rebind(reference.gear_append, with_block=with_block)
gear_read = rebind(reference.gear_read, gear_reconstruct=gear_reconstruct)
