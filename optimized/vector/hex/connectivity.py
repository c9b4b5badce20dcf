"""Components by scipy's graph search."""

from torch import Tensor

import reference
from optimized._composed import composed
from optimized.vector.hex.spectrum import Graph


def component_count(mask: Tensor) -> int:
    return Graph.of(mask).component_count()


is_connected = composed(reference.is_connected)
