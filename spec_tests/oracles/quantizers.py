"""KIVI and GEAR one number at a time: grids over `Fraction`, power iteration on Python floats."""

import math
from fractions import Fraction

import numpy as np

Matrix = list[list[float]]


def on_grid(group: list[float], bits: int, among: list[float] | None = None) -> list[float]:
    """Return each member's nearest point of the grid over `among`, by default the group itself."""
    exact = [Fraction(x) for x in group]
    low = min(map(Fraction, among or group), default=Fraction(0))
    high = max(map(Fraction, among or group), default=Fraction(0))
    step = (high - low) / (2**bits - 1)
    # Python rounds halves of fractions to even
    return [float(low + step * round((x - low) / step)) if step else float(low) for x in exact]


def in_groups(row: list[float], size: int, bits: int) -> list[float]:
    """Return a row whose groups are on grids of their own."""
    pieces = [on_grid(row[start : start + size], bits) for start in range(0, len(row), size)]
    return [x for piece in pieces for x in piece]


def transposed(rows: Matrix) -> Matrix:
    """Exchange rows and columns."""
    return [list(column) for column in zip(*rows, strict=True)]


def kivi_keys(keys: Matrix, bits: int, group: int, residual: int) -> Matrix:
    """Return one head's keys: whole buffers by channel, the rest as they are."""
    whole = len(keys) - len(keys) % residual
    channels = [in_groups(channel, group, bits) for channel in transposed(keys[:whole])]
    return transposed(channels) + keys[whole:]


def kivi_values(values: Matrix, bits: int, group: int, residual: int) -> Matrix:
    """Return one head's values: all but the last `residual` by token."""
    old = max(0, len(values) - residual)
    return [in_groups(token, group, bits) for token in values[:old]] + values[old:]


def outliers(row: list[float], share: Fraction) -> set[int]:
    """Return the places of the largest and of the smallest members, as many of both."""
    count = math.floor(share * len(row) / 2)
    order = sorted(range(len(row)), key=lambda i: (-row[i], i))
    return set(order[:count]) | set(order[len(row) - count :])


def without_outliers(row: list[float], bits: int, apart: set[int], fill: bool) -> list[float]:
    """Return a row on a grid that outliers have left, and the outliers."""
    mean = math.fsum(row) / len(row)
    rest = [x for i, x in enumerate(row) if i not in apart] + ([mean] if fill and apart else [])
    near = on_grid(row, bits, rest or [0.0])
    return [x if i in apart else near[i] for i, x in enumerate(row)]


def product(left: Matrix, right: Matrix) -> Matrix:
    """Multiply two matrices."""
    columns = transposed(right)
    return [[math.fsum(map(float.__mul__, row, column)) for column in columns] for row in left]


def orthonormal(x: Matrix) -> Matrix:
    """Return an orthonormal basis of the columns: Gram and Schmidt's, twice for good measure."""
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
    """Return the matrix of a rank that the power iteration finds."""
    if rank == 0 or not any(map(any, x)):
        return [[0.0] * len(row) for row in x]
    stream = np.random.RandomState([seed, 4])
    start = [[2 * stream.random_sample() - 1 for _ in x[0]] for _ in range(rank)]
    right = transposed(start)
    for _ in range(rounds - 1):
        right = product(transposed(x), product(x, right))
    left = orthonormal(product(x, orthonormal(right)))
    return product(left, transposed(product(transposed(x), left)))


def gear(
    heads: list[Matrix], by: str, bits: int, share: Fraction, rank: int, fill: bool, seed: int
) -> tuple[list[Matrix], list[Matrix]]:
    """Return one sequence's heads restored, with the correction and before it."""
    if by == "channel":
        rows = [channel for head in heads for channel in transposed(head)]
    else:
        rows = [[x for row in token for x in row] for token in zip(*heads, strict=True)]
    near = [without_outliers(row, bits, outliers(row, share), fill) for row in rows]
    width = len(heads[0][0])
    if by == "channel":
        plain = [transposed(near[h * width : (h + 1) * width]) for h in range(len(heads))]
    else:
        plain = [[row[h * width : (h + 1) * width] for row in near] for h in range(len(heads))]
    restored = []
    for head, stored in zip(heads, plain, strict=True):
        error = [
            [x - y for x, y in zip(*pair, strict=True)] for pair in zip(head, stored, strict=True)
        ]
        low = low_rank(error, min(rank, len(head), width), 3, seed)
        restored.append(
            [[x + y for x, y in zip(*pair, strict=True)] for pair in zip(stored, low, strict=True)]
        )
    return restored, plain
