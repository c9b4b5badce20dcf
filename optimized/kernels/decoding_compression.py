"""Compression while decoding, rebound to kernels."""

from optimized import vector
from optimized._rebind import rebind
from optimized.kernels.compress import best, refine_rows
from optimized.kernels.evict import evict
from optimized.vector.decoding_compression import _refined as torch_refined
from optimized.vector.decoding_compression import shrunk as torch_shrunk
from optimized.vector.decoding_compression import survivors as torch_survivors

_refined = rebind(torch_refined, refine_rows=refine_rows)
survivors = rebind(torch_survivors, best=best, _refined=_refined)
shrunk = rebind(torch_shrunk, survivors=survivors, evict=evict)
decoding_start = rebind(vector.decoding_start, shrunk=shrunk)
decoding_append = rebind(vector.decoding_append, shrunk=shrunk)
