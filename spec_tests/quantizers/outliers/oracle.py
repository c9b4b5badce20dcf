"""Outliers of one row, by sorting its places."""

import math
from fractions import Fraction


def outliers(row: list[float], share: Fraction) -> set[int]:
    """Return the places of the largest and of the smallest members, in equal numbers."""
    count = math.floor(share * len(row) / 2)
    order = sorted(range(len(row)), key=lambda i: (-row[i], i))
    return set(order[:count]) | set(order[len(row) - count :])
