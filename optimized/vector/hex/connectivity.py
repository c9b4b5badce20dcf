"""Components by scipy's graph search."""

from torch import Tensor

import reference
from optimized._rebind import rebind
from optimized.vector.hex.spectrum import BipartiteGraph


def component_count(mask: Tensor) -> int:
    return BipartiteGraph.of(mask).component_count()


is_connected = rebind(reference.is_connected, component_count=component_count)
