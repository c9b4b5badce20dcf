"""A bound on the number of components."""

from torch import Tensor


def fewest_components(mask: Tensor) -> int:
    """Return the least number of components of a graph with the degrees of a mask.

    A vertex without an edge is a component. The other vertices form one component, or trees if
    there are too few edges.
    """
    edges, alone = int(mask.sum()), int((~mask.any(0)).sum() + (~mask.any(1)).sum())
    return alone + (max(1, sum(mask.shape) - alone - edges) if edges else 0)
