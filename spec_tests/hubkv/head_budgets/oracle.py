"""Budgets by counting the best shares: exact over `Fraction`."""

from collections.abc import Sequence
from fractions import Fraction

from spec_tests.hubkv.discount.oracle import Row


def count_winners_per_head(heads: Sequence[Row], places: int) -> list[int]:
    """Count each head's entries among the best shares of its sum; heads take ties in turn."""
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
