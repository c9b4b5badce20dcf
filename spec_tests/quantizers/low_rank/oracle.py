"""Power iteration on Python floats."""

import math

import numpy as np

from spec_tests.quantizers.kivi.oracle import Matrix, transposed


def product(left: Matrix, right: Matrix) -> Matrix:
    """Multiply two matrices."""
    columns = transposed(right)
    return [[math.fsum(map(float.__mul__, row, column)) for column in columns] for row in left]


def orthonormal(x: Matrix) -> Matrix:
    """Return an orthonormal basis of the columns, by the Gram-Schmidt process applied twice."""
    basis: Matrix = []
    for column in transposed(x):
        for _ in range(2):
            for other in basis:
                overlap = math.fsum(map(float.__mul__, column, other))
                column = [c - overlap * o for c, o in zip(column, other, strict=True)]
        length = math.hypot(*column)
        basis.append([c / length for c in column])
    return transposed(basis)


def low_rank(x: Matrix, rank: int, rounds: int, seed: int) -> Matrix:
    """Return the low-rank matrix that the power iteration finds."""
    if rank == 0 or not any(map(any, x)):
        return [[0.0] * len(row) for row in x]
    stream = np.random.RandomState([seed, 4])
    start = [[2 * stream.random_sample() - 1 for _ in x[0]] for _ in range(rank)]
    right = transposed(start)
    for _ in range(rounds - 1):
        right = product(transposed(x), product(x, right))
    left = orthonormal(product(x, orthonormal(right)))
    return product(left, transposed(product(transposed(x), left)))
