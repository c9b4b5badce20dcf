"""How hard a graph is to separate: spectral gap, vertex expansion, conductance."""

from collections.abc import Iterator
from itertools import combinations

import torch
from jaxtyping import Bool
from torch import Tensor

from reference.contract import checks
from reference.contract.enforce import any_true, may_read_values, requires


def symmetric(adjacency: Tensor) -> None:
    """Refuse an adjacency matrix that is not symmetric."""
    if may_read_values(adjacency) and any_true(adjacency ^ adjacency.T.contiguous()):
        raise ValueError(f"adjacency must be symmetric, got shape {tuple(adjacency.shape)}")


def several(vertices: int) -> None:
    """Refuse a graph of fewer than two vertices."""
    if vertices < 2:
        raise ValueError(f"adjacency must have a number of vertices >= 2, got {vertices}")


def small(vertices: int) -> None:
    """Refuse a graph with more sets of vertices than can be tried."""
    if not 2 <= vertices <= 20:
        raise ValueError(f"adjacency must have a number of vertices in [2, 20], got {vertices}")


def inhabited(subset: Tensor) -> None:
    """Refuse a set without members."""
    checks.check_any_true("subset", subset)


@requires(symmetric, several)
def spectral_gap(
    adjacency: Bool[Tensor, "vertices vertices"], bipartite: bool = False, two_sided: bool = False
) -> float:
    r"""Return how far the trivial eigenvalues of a graph stand from the others.

    $$\min\bigl(|\lambda_1 - \lambda_2|,\; |\lambda_1 - \lambda_k|\bigr),
      \qquad k = n - 1 \text{ if bipartite},\; n \text{ otherwise}$$

    Args:
        adjacency: the symmetric adjacency matrix of a graph of at least two vertices.
        bipartite: whether $\lambda_n = -\lambda_1$ is trivial too.
        two_sided: take $\lambda_1 - |\lambda_k|$ in the second place.

    Returns:
        The gap. For the bipartite graph of a biregular mask of more than one entry it is
        $\sigma_1 - \sigma_2$.

    Source:
        HEX-A.1a, HEX-Tab5. As printed (A.1); the minimum of the two distances, and `two_sided`, are
        ours (E-H32).

    Reading:
        E-H32: as printed, the second distance is the smaller one for two vertices alone, where
        $k = 1$; `two_sided` is what the case distinction for $k$ is for.
    """
    values = torch.linalg.eigvalsh(adjacency.double()).flip(0).tolist()
    last = values[-2] if bipartite else values[-1]
    return min(abs(values[0] - values[1]), abs(values[0] - (abs(last) if two_sided else last)))


@requires(symmetric, several, inhabited)
def vertex_expansion(
    adjacency: Bool[Tensor, "vertices vertices"], subset: Bool[Tensor, "vertices"]
) -> float:
    r"""Return the outer boundary of a set of vertices, relative to its size.

    $$\frac{|\delta(X)|}{|X|}$$

    Args:
        adjacency: the symmetric adjacency matrix of a graph of at least two vertices.
        subset: the set $X$, not empty.

    Returns:
        The number of vertices outside $X$ with a neighbour in $X$, divided by $|X|$.

    Source:
        HEX-Def1. As printed (Def. 1).
    """
    outside = [v for v in range(len(adjacency)) if not subset[v]]
    boundary = [v for v in outside if bool((adjacency[v] & subset).any())]
    return len(boundary) / int(subset.sum())


@requires(symmetric, small)
def cheeger_constant(adjacency: Bool[Tensor, "vertices vertices"]) -> float:
    r"""Return the vertex Cheeger constant of a small graph, by trying every set of vertices.

    $$h_V(\Gamma) = \min_{0 < |X| \le |V| / 2} \frac{|\delta(X)|}{|X|}$$

    Args:
        adjacency: the symmetric adjacency matrix of a graph of 2 to 20 vertices.

    Returns:
        $h_V$: the graph is an $\epsilon$-vertex expander for every $\epsilon \le h_V$. It is 0
        exactly where the graph is disconnected.

    Source:
        HEX-Def1. As printed (Def. 1).
    """
    half = len(adjacency) // 2
    return min(
        vertex_expansion(adjacency, subset)
        for subset in _subsets(adjacency)
        if int(subset.sum()) <= half
    )


@requires(symmetric, small)
def conductance(adjacency: Bool[Tensor, "vertices vertices"]) -> float:
    r"""Return the conductance of a small graph, by trying every set of vertices.

    $$\phi = \min_{0 < \mathrm{vol}(X) \le \mathrm{vol}(V) / 2}
      \frac{|E(X, V \setminus X)|}{\mathrm{vol}(X)}, \qquad
      \mathrm{vol}(X) = \sum_{v \in X} \deg v$$

    Args:
        adjacency: the symmetric adjacency matrix of a graph of 2 to 20 vertices.

    Returns:
        $\phi$, in [0, 1]. It is 0 for a graph without edges.

    Source:
        HEX-Def1. Ours: the constant of boundary edges, for the Cheeger inequalities with the
        spectral gap (E-H30).

    Reading:
        E-H30: Definition 1 counts boundary vertices; the Cheeger inequalities with the spectral
        gap are about boundary edges, so both constants are here.
    """
    degree = adjacency.sum(1)
    found = [
        int(adjacency[subset][:, ~subset].sum()) / int(degree[subset].sum())
        for subset in _subsets(adjacency)
        if 0 < 2 * int(degree[subset].sum()) <= int(degree.sum())
    ]
    return min(found, default=0.0)


def _subsets(adjacency: Tensor) -> Iterator[Tensor]:
    vertices = range(len(adjacency))
    for size in vertices[1:]:
        for members in combinations(vertices, size):
            subset = adjacency.new_zeros(len(adjacency))
            subset[list(members)] = True
            yield subset
