"""HubKV on Python numbers, one token at a time: exact over `Fraction`."""

import math
from collections.abc import Sequence
from fractions import Fraction

import torch
from torch import Tensor

from spec_tests.hubkv.discount.oracle import Row, discounted, exact, hubs

__all__ = ["Row", "discounted", "exact", "hubs"]


def gated(score: Fraction, corrected: Fraction, strength: Fraction) -> Fraction:
    """Return the mixture of a raw and a corrected score."""
    return (1 - strength) * score + strength * corrected


def variance(row: Row) -> Fraction:
    """Return the population variance."""
    mean = sum(row, Fraction(0)) / len(row)
    return sum(((s - mean) ** 2 for s in row), Fraction(0)) / len(row)


def variation(row: Row, epsilon: Fraction) -> float:
    """Return the coefficient of variation; 0 for no scores and for zeros."""
    if not any(row):
        return 0.0
    return math.sqrt(variance(row)) / float(sum(row, Fraction(0)) / len(row) + epsilon)


def factors(
    strength: Fraction, gamma: Fraction, low: Fraction, high: Fraction
) -> tuple[Fraction, Fraction]:
    """Return the least and the greatest share of its raw score that refinement leaves a token."""
    return gated(Fraction(1), gamma * low, strength), gated(Fraction(1), high, strength)


def best(scores: Tensor, count: int) -> Tensor:
    """Mark the `count` best of each row, the earlier of equals: a plain Top-K."""
    order = scores.sort(descending=True, stable=True).indices[..., :count]
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, order, True)


def winners(heads: Sequence[Row], places: int) -> list[int]:
    """Count each head's entries among the best shares of its sum, ties in turn."""
    totals = [sum(row, Fraction(0)) for row in heads]
    shares = [
        sorted((s / total if total else Fraction(1, len(row)) for s in row), reverse=True)
        for row, total in zip(heads, totals, strict=True)
    ]
    order = sorted(
        ((head, rank) for head, row in enumerate(shares) for rank in range(len(row))),
        key=lambda entry: (-shares[entry[0]][entry[1]], entry[1], entry[0]),
    )
    return [sum(head == winner for winner, _ in order[:places]) for head in range(len(heads))]
