"""Head statistics on Python numbers: exact over `Fraction`."""

import math
from fractions import Fraction

from spec_tests.hubkv.discount.oracle import Row


def variance(row: Row) -> Fraction:
    """Return the population variance."""
    mean = sum(row, Fraction(0)) / len(row)
    return sum(((s - mean) ** 2 for s in row), Fraction(0)) / len(row)


def variation(row: Row, epsilon: Fraction) -> float:
    """Return the coefficient of variation; 0 for no scores and for scores of 0."""
    if not any(row):
        return 0.0
    return math.sqrt(variance(row)) / float(sum(row, Fraction(0)) / len(row) + epsilon)
