"""Eigenvalues by scalars: Jacobi's rotations for any graph, Fourier sums for circulant graphs."""

import math

import torch
from torch import Tensor


def eigenvalues(matrix: list[list[float]]) -> list[float]:
    """Return the eigenvalues of a symmetric matrix, largest first, by rotating entries to 0."""
    a = [list(map(float, row)) for row in matrix]
    below = [(p, q) for q in range(len(a)) for p in range(q)]
    least = 2**-60 * max((abs(entry) for row in a for entry in row), default=0.0)
    while left := [(p, q) for p, q in below if abs(a[p][q]) > least]:
        for p, q in left:
            _rotate(a, p, q)
    return sorted((row[i] for i, row in enumerate(a)), reverse=True)


def _rotate(a: list[list[float]], p: int, q: int) -> None:
    """Rotate two axes by the smaller angle that makes their entry 0."""
    if a[p][q] == 0:
        return
    slope = (a[q][q] - a[p][p]) / (2 * a[p][q])
    tangent = math.copysign(1, slope) / (abs(slope) + math.hypot(slope, 1))
    c = 1 / math.hypot(tangent, 1)
    s = tangent * c
    for row in a:
        row[p], row[q] = c * row[p] - s * row[q], s * row[p] + c * row[q]
    for i in range(len(a)):
        a[p][i], a[q][i] = c * a[p][i] - s * a[q][i], s * a[p][i] + c * a[q][i]
    a[p][q] = a[q][p] = 0.0


def circulant_eigenvalues(size: int, steps: set[int]) -> list[complex]:
    """Return the eigenvalues of the graph with an edge from each i to i + s, for every step s."""
    turns = [2 * math.pi * j / size for j in range(size)]
    return [
        complex(sum(math.cos(turn * s) for s in steps), sum(math.sin(turn * s) for s in steps))
        for turn in turns
    ]


def singular_value_error_scale(mask: Tensor) -> float:
    """Return the scale of rounding errors of a singular value: the sizes times the largest one."""
    largest = torch.linalg.matrix_norm(mask.double(), 2).item() if mask.numel() else 0.0
    return sum(mask.shape) * max(1.0, largest)
