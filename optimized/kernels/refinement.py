"""Refinement by name, rebound to the kernels of HubKV and GraphKV."""

from optimized import vector
from optimized._rebind import rebind
from optimized.kernels.graphkv.refine import graphkv_refine
from optimized.kernels.hubkv.refine import hubkv_refine

refine = rebind(vector.refine, hubkv_refine=hubkv_refine, graphkv_refine=graphkv_refine)
