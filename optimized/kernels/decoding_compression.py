"""Compression while decoding, rebound to kernels."""

from optimized import vector
from optimized._rebind import rebind
from optimized.kernels.compress import best, refine_rows
from optimized.kernels.evict import evict
from optimized.vector.decoding_compression import _refined as torch_refined
from optimized.vector.decoding_compression import compress_to_target as torch_compress_to_target
from optimized.vector.decoding_compression import survivors as torch_survivors

_refined = rebind(torch_refined, refine_rows=refine_rows)
survivors = rebind(torch_survivors, best=best, _refined=_refined)
compress_to_target = rebind(torch_compress_to_target, survivors=survivors, evict=evict)
decoding_start = rebind(vector.decoding_start, compress_to_target=compress_to_target)
decoding_append = rebind(vector.decoding_append, compress_to_target=compress_to_target)
