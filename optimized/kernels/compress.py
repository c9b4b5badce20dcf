"""Selection and compression, rebound to kernels."""

from optimized import vector
from optimized._rebind import rebind
from optimized.kernels.evict import evict
from optimized.kernels.hex.cache import hex_store
from optimized.kernels.refinement import refine
from optimized.kernels.retain import retain
from optimized.vector.compress import best as torch_best
from optimized.vector.compress import refine_and_retain as torch_refine_and_retain
from optimized.vector.compress import refine_rows as torch_refine_rows
from optimized.vector.compress import select_for_hex as torch_select_for_hex

refine_rows = rebind(torch_refine_rows, refine=refine)
best = rebind(torch_best, retain=retain)
refine_and_retain = rebind(
    torch_refine_and_retain, refine=refine, retain=retain, refine_rows=refine_rows, best=best
)
select = rebind(vector.select, refine_and_retain=refine_and_retain)
select_for_hex = rebind(torch_select_for_hex, refine_and_retain=refine_and_retain)
compress = rebind(
    vector.compress,
    select=select,
    select_for_hex=select_for_hex,
    evict=evict,
    hex_store=hex_store,
)
