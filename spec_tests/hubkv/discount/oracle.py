"""Hubs and discounts on Python numbers, one token at a time: exact over `Fraction`."""

from collections.abc import Sequence
from fractions import Fraction

from torch import Tensor

Row = Sequence[Fraction]


def fractions(tensor: Tensor) -> list:
    """Return the exact values of a tensor as nested lists of fractions."""
    if tensor.ndim == 0:
        return Fraction(tensor.item())  # pyright: ignore[reportReturnType]
    return [fractions(part) for part in tensor]


def hubs(row: Row, radius: int, protected: Sequence[bool] | None = None) -> list[bool]:
    """Return, for each token, whether no rival in its window is stronger, or equal and earlier."""
    aside = protected or [False] * len(row)

    def beats(j: int, i: int) -> bool:
        return not aside[j] and (row[j] > row[i] or (row[j] == row[i] and j < i))

    return [
        not aside[i]
        and not any(beats(j, i) for j in range(len(row)) if j != i and abs(i - j) <= radius)
        for i in range(len(row))
    ]


def discounted(row: Row, radius: int, gamma: Fraction) -> list[Fraction]:
    """Return the scores, where all but the hubs' are multiplied by gamma."""
    marks = hubs(row, radius)
    return [s if hub else gamma * s for s, hub in zip(row, marks, strict=True)]
