"""The spectrum of a mask as a sparse matrix, by Lanczos where a dense solver would be slow."""

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from optimized.vector._by_numpy import places
from reference.hex.spectrum import ROUNDING, ramanujan_bound

if TYPE_CHECKING:
    from scipy.sparse import csr_array  # it takes half a second to import

DENSE = 256
"""Up to this many vertices on the smaller side, a dense solver is as fast."""

DOUBT = 40 * math.log(2)
"""The logarithm of 2^40: a verdict may be wrong for one in 2^40 random starts."""


class BipartiteGraph:
    """A bipartite graph as a sparse biadjacency matrix."""

    def __init__(self, columns: np.ndarray, offsets: np.ndarray, shape: tuple[int, int]):
        from scipy.sparse import csr_array

        self.shape = shape
        self.matrix = csr_array((np.ones(columns.size), columns, offsets), shape=shape)

    @classmethod
    def of_pairs(cls, pairs: np.ndarray, channels: int) -> "BipartiteGraph":
        """Return the graph of the channels of each token."""
        tokens, degree = pairs.shape
        columns = pairs.reshape(-1).astype(np.int32)
        return cls(columns, degree * np.arange(tokens + 1, dtype=np.int32), (tokens, channels))

    @classmethod
    def of(cls, mask: Tensor) -> "BipartiteGraph":
        """Return the graph of a mask."""
        tokens, channels = mask.shape
        entries = places(mask.cpu()).numpy()
        offsets = np.searchsorted(entries, channels * np.arange(tokens + 1))
        return cls(entries % max(1, channels), offsets, (tokens, channels))

    def wide(self) -> "csr_array":
        """Return the matrix with the smaller side as rows."""
        tokens, channels = self.shape
        return self.matrix if tokens <= channels else self.matrix.T.tocsr()

    def component_count(self) -> int:
        """Count the connected components."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        if 0 in self.shape:
            return sum(self.shape)
        tokens, channels = self.shape
        offsets, columns = self.matrix.indptr, self.matrix.indices + tokens
        # an edge counts in both directions, so that channels need none of their own
        offsets = np.append(offsets, np.full(channels, offsets[-1]))
        parts = np.ones(len(columns), np.bool_), columns, offsets
        adjacency = csr_array(parts, shape=(tokens + channels,) * 2)
        return int(connected_components(adjacency, directed=False, return_labels=False))

    def second_eigenvalue(self) -> float:
        """Return the second eigenvalue of the dense Gram matrix of the smaller side."""
        wide = torch.from_numpy(self.wide().toarray())
        return torch.linalg.eigvalsh(wide @ wide.T)[-2].item()

    def deflated_singular_value(self) -> float:
        """Return the second singular value of a biregular graph, by Lanczos to full precision."""
        wide, tall = self.wide(), self.wide().T.tocsr()
        size = min(self.shape)
        # both constant vectors belong to the first singular value, so they can be projected out
        first = self.matrix.sum() ** 2 / (self.shape[0] * self.shape[1])

        def contract(x: np.ndarray) -> np.ndarray:
            return wide @ (tall @ x) - first * x.mean()

        from scipy.sparse.linalg import LinearOperator, eigsh

        # pyright does not know that scipy builds a subclass from a function
        gram = LinearOperator((size, size), matvec=contract)  # pyright: ignore[reportCallIssue]
        start = np.random.RandomState(0).standard_normal(size)
        top = eigsh(gram, k=1, which="LA", return_eigenvectors=False, v0=start)
        return math.sqrt(max(0.0, float(top[0])))


def is_within(graph: BipartiteGraph, bound: float) -> bool:
    """Decide whether the second singular value of a biregular graph is at most `bound`.

    Ritz values only grow, so one above the bound rejects with certainty. Kuczyński and Woźniakowski
    bound the error of the largest Ritz value after k steps from a random start. So one that is far
    enough below the bound accepts. If neither happens, the dense solver decides.
    """
    bound *= ROUNDING
    size = min(graph.shape)
    if size < 2:
        return True
    if size > DENSE:
        steps = DOUBT + math.log(1.648 * math.sqrt(size))
        for k, ritz in _lanczos(graph.wide()):
            lag = (steps / (2 * k - 1)) ** 2
            if ritz > bound**2:
                return False
            if lag < 1 and ritz <= (1 - lag) * bound**2:
                return True
    return graph.second_eigenvalue() <= bound**2


def _lanczos(wide: "csr_array", most: int = 512, every: int = 8):
    """Yield the number of steps and the largest Ritz value orthogonal to the constant vector."""
    from scipy.linalg import eigh_tridiagonal

    tall = wide.T.tocsr()
    size = len(wide.indptr) - 1
    basis = np.empty((most + 2, size))
    basis[0] = 1 / math.sqrt(size)
    vector = np.random.RandomState(0).standard_normal(size)
    diagonal, beside = [], []
    for k in range(1, min(most, size - 1) + 1):
        vector -= (basis[:k] @ vector) @ basis[:k]
        length = np.linalg.norm(vector)
        beside.append(length)
        if length <= np.finfo(float).eps * size:
            return
        basis[k] = vector / length
        vector = wide @ (tall @ basis[k])
        diagonal.append(basis[k] @ vector)
        vector -= (basis[: k + 1] @ vector) @ basis[: k + 1]
        if k % every == 0:
            top = eigh_tridiagonal(
                diagonal, beside[1:], eigvals_only=True, select="i", select_range=(k - 1, k - 1)
            )
            yield k, float(top[0])


def second_singular_value(mask: Tensor) -> float:
    if min(mask.shape) < 2:
        return 0.0
    regular = len(mask.sum(0).unique()) == len(mask.sum(1).unique()) == 1
    if regular and min(mask.shape) > DENSE:
        if mask.all() or not mask.any():
            # a constant mask is zero once the constant vectors are projected out
            return 0.0
        return BipartiteGraph.of(mask).deflated_singular_value()
    return torch.linalg.svdvals(mask.cpu().double())[1].item()


def is_ramanujan(mask: Tensor) -> bool:
    rows, columns = mask.sum(1).unique().tolist(), mask.sum(0).unique().tolist()
    if len(rows) != 1 or len(columns) != 1 or min(rows + columns) < 3:
        return False
    return is_within(BipartiteGraph.of(mask), ramanujan_bound(rows[0], columns[0]))
