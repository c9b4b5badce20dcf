"""HubKV without its gate, rebound to the kernel of its refinement."""

from optimized import vector
from optimized._rebind import rebind
from optimized.kernels.hubkv.refine import hubkv_refine

ungated_refine = rebind(vector.ungated_refine, hubkv_refine=hubkv_refine)
