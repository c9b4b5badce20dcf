"""Components by scipy's graph search."""

from torch import Tensor

from optimized.vector.hex.spectrum import BipartiteGraph


def component_count(mask: Tensor) -> int:
    return BipartiteGraph.of(mask).component_count()


def is_connected(mask: Tensor) -> bool:
    return component_count(mask) == 1
