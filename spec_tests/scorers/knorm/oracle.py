"""Lengths of keys, one number at a time.

A row is a list of heads, a head a list of vectors; the result is a list of scores a key head.
"""

import math

Head = list[list[float]]


def knorm(keys: list[Head]) -> list[list[float]]:
    """Return minus the length of every key."""
    return [[-math.sqrt(math.fsum(c * c for c in key)) for key in head] for head in keys]
