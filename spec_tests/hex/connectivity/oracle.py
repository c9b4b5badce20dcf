"""What degrees allow."""

from torch import Tensor


def fewest_components(mask: Tensor) -> int:
    """Return how few components a graph with the degrees of a mask can have.

    Vertices without an edge are alone; the others hang together, or are trees if edges are few.
    """
    edges, alone = int(mask.sum()), int((~mask.any(0)).sum() + (~mask.any(1)).sum())
    return alone + (max(1, sum(mask.shape) - alone - edges) if edges else 0)
