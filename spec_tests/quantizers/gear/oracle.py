"""GEAR one number at a time: grids over `Fraction`, power iteration on Python floats."""

import math
from fractions import Fraction

from spec_tests.quantizers.kivi.oracle import Matrix, on_grid, transposed
from spec_tests.quantizers.low_rank.oracle import low_rank
from spec_tests.quantizers.outliers.oracle import outliers


def without_outliers(row: list[float], bits: int, apart: set[int], fill: bool) -> list[float]:
    """Return a row on the grid of its other members, with outliers unchanged."""
    mean = math.fsum(row) / len(row)
    rest = [x for i, x in enumerate(row) if i not in apart] + ([mean] if fill and apart else [])
    near = on_grid(row, bits, rest or [0.0])
    return [x if i in apart else near[i] for i, x in enumerate(row)]


def gear(
    heads: list[Matrix], by: str, bits: int, share: Fraction, rank: int, fill: bool, seed: int
) -> tuple[list[Matrix], list[Matrix]]:
    """Return one sequence's restored heads, with and without the correction."""
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
