"""PyramidKV's budgets in fractions."""

import math
from fractions import Fraction


def pyramidkv_budgets(
    keep: int, layers: int, tokens: int, window: int, beta: int, exact: bool
) -> list[int]:
    """Return the budget of every layer."""
    if tokens <= keep:
        return [tokens] * layers
    mean = keep - window
    if layers == 1 or tokens < 2 * mean:
        return [keep] * layers
    steep = mean - mean // beta
    flat = tokens - window - mean
    half = min(steep, flat)  # from the mean up to the first layer, and down to the last
    if not exact:
        return [keep + half - layer * (2 * half // (layers - 1)) for layer in range(layers)]
    line = [keep + half - Fraction(2 * half * layer, layers - 1) for layer in range(layers)]
    share = [math.floor(value) for value in line]
    while sum(share) < keep * layers:
        gaps = [value - part for value, part in zip(line, share, strict=True)]
        share[gaps.index(max(gaps))] += 1
    return share
