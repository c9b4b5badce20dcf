"""Refinement by name, rebound to vectorised functions."""

import reference
from optimized._rebind import rebind
from optimized.vector.graphkv.refine import graphkv_refine
from optimized.vector.hubkv.nms import nms
from optimized.vector.hubkv.refine import hubkv_refine

refine = rebind(reference.refine, nms=nms, hubkv_refine=hubkv_refine, graphkv_refine=graphkv_refine)
