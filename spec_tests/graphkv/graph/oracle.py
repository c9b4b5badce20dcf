"""Algorithm 1 as printed, number by number in exact fractions."""

from fractions import Fraction
from math import isqrt

import torch
from torch import Tensor

Edges = dict[tuple[int, int], Fraction]


def as_float64(numbers: list[Fraction]) -> Tensor:
    """Return exact numbers rounded to float64."""
    return torch.tensor([float(number) for number in numbers], dtype=torch.float64)


def algorithm_1(
    keys: list[list[Fraction]], scores: list[Fraction], k: int
) -> tuple[list[int], Edges]:
    """Return the sources and their edges; the lengths of `keys` must be rational."""
    tokens = range(len(scores))
    sources = sorted(tokens, key=lambda i: (-scores[i], i))[:k]
    return sources, {(i, j): cosine(keys[i], keys[j]) for i in sources for j in tokens if j != i}


def cosine(first: list[Fraction], second: list[Fraction]) -> Fraction:
    """Return the cosine of two vectors, 0 where one has length 0."""
    inner = sum((a * b for a, b in zip(first, second, strict=True)), Fraction(0))
    lengths = length(first) * length(second)
    return inner / lengths if lengths else Fraction(0)


def length(vector: list[Fraction]) -> Fraction:
    """Return the length of a vector that has a rational one."""
    square = sum((a * a for a in vector), Fraction(0))
    root = Fraction(isqrt(square.numerator), isqrt(square.denominator))
    assert root * root == square, f"{square} is no square"
    return root


def neighbourhood(edges: Edges, i: int, m: int) -> list[int]:
    """Return the ends of the `m` strongest edges of source `i`."""
    ends = [j for source, j in edges if source == i]
    return sorted(ends, key=lambda j: (-edges[i, j], j))[:m]
