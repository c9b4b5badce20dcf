"""The gate on Python numbers: exact over `Fraction`."""

from fractions import Fraction


def gated(score: Fraction, corrected: Fraction, strength: Fraction) -> Fraction:
    """Return the mixture of a raw and a corrected score."""
    return (1 - strength) * score + strength * corrected


def factor_bounds(
    strength: Fraction, gamma: Fraction, low: Fraction, high: Fraction
) -> tuple[Fraction, Fraction]:
    """Return the least and the greatest ratio of a refined score to its raw score."""
    return gated(Fraction(1), gamma * low, strength), gated(Fraction(1), high, strength)
