"""Whether a mask hangs together, as a bipartite graph between tokens and channels."""

from jaxtyping import Bool
from torch import Tensor


def bipartite_adjacency(
    mask: Bool[Tensor, "tokens channels"],
) -> Bool[Tensor, "vertices vertices"]:
    r"""Return the adjacency matrix of the bipartite graph: tokens first, then channels.

    $$A = \begin{pmatrix} 0 & B \\ B^\top & 0 \end{pmatrix}$$

    Args:
        mask: the biadjacency matrix $B$.

    Returns:
        The symmetric adjacency matrix $A$.

    Source:
        HEX-3.2a. In words (§3.2): "We view the cache matrix $K \in \mathbb{R}^{n \times d}$ as the
        biadjacency of a bipartite graph $G = (U, V, E)$". The order of the vertices is ours.
    """
    tokens, channels = mask.shape
    adjacency = mask.new_zeros(tokens + channels, tokens + channels)
    adjacency[:tokens, tokens:] = mask
    adjacency[tokens:, :tokens] = mask.T
    return adjacency


def component_count(mask: Bool[Tensor, "tokens channels"]) -> int:
    """Count the connected components of a mask's bipartite graph.

    Args:
        mask: the biadjacency matrix.

    Returns:
        The number of components; a token or channel without an edge is one of its own.

    Source:
        HEX-A.3a.
    """
    adjacency = bipartite_adjacency(mask)
    seen: set[int] = set()
    count = 0
    for start in range(len(adjacency)):
        if start not in seen:
            count += 1
            frontier = [start]
            seen.add(start)
            while frontier:
                near = adjacency[frontier.pop()].nonzero().flatten().tolist()
                frontier += [vertex for vertex in near if vertex not in seen]
                seen.update(near)
    return count


def is_connected(mask: Bool[Tensor, "tokens channels"]) -> bool:
    """Decide whether a mask's bipartite graph hangs together.

    Args:
        mask: the biadjacency matrix.

    Returns:
        Whether there is exactly one component. For a biregular mask: whether
        `second_singular_value` is below the first.

    Source:
        HEX-A.3a.
    """
    return component_count(mask) == 1
