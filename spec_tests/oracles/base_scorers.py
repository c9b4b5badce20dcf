"""Scorers that need queries and keys alone, one number at a time, on rows without padding.

A row is a list of heads, a head a list of vectors; the result is a list of scores a key head.
"""

import math
from fractions import Fraction

from spec_tests.attention.oracle import weights

Head = list[list[float]]


def knorm(keys: list[Head]) -> list[list[float]]:
    """Return minus the length of every key."""
    return [[-math.sqrt(math.fsum(c * c for c in key)) for key in head] for head in keys]


def draws(queries: list[Head], keys: list[Head], last: int) -> list[list[list[float]]]:
    """Return what every token draws from the last queries of every query head, key head outside."""
    tokens, group = len(keys[0]), len(queries) // len(keys)
    drawn = []
    for h, cache in enumerate(keys):
        drawn.append([[0.0] * tokens for _ in range(group)])
        for g in range(group):
            head = queries[h * group + g]
            for back in range(min(last, len(head))):
                seen, query = tokens - back, head[len(head) - 1 - back]
                handed = weights(query, cache[:seen], 1 / math.sqrt(len(query)))
                for t in range(seen):
                    drawn[h][g][t] += handed[t]
    return drawn


def h2o_mass(queries: list[Head], keys: list[Head]) -> list[list[float]]:
    """Return the attention each token draws from every query of its group."""
    return [
        [math.fsum(member[t] for member in group) for t in range(len(cache))]
        for group, cache in zip(draws(queries, keys, len(keys[0])), keys, strict=True)
    ]


def h2o_kept(mass: list[float], keep: int) -> set[int]:
    """Return the recent half of the budget and the heaviest of the tokens before it."""
    before = max(0, len(mass) - keep // 2)
    heavy = sorted(range(before), key=lambda t: (-mass[t], t))[: keep - keep // 2]
    return {*heavy, *range(before, len(mass))}


def snapkv(
    queries: list[Head], keys: list[Head], window: int, kernel: int, pooling: str
) -> list[list[float]]:
    """Return the pooled attention of the last window, averaged over the group."""
    content = max(0, len(keys[0]) - window)
    rows = []
    for group in draws(queries, keys, window):
        row = [0.0] * len(keys[0])
        for t in range(content):
            pooled = []
            for member in group:
                span = range(t - kernel // 2, t + kernel // 2 + 1)
                near = [member[i] if 0 <= i < content else 0.0 for i in span]
                pooled.append(max(near) if pooling == "max" else math.fsum(near) / kernel)
            row[t] = math.fsum(pooled) / len(group)
        rows.append(row)
    return rows


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
    half = min(steep, flat)  # from the mean to the first layer, and down to the last
    if not exact:
        return [keep + half - layer * (2 * half // (layers - 1)) for layer in range(layers)]
    line = [keep + half - Fraction(2 * half * layer, layers - 1) for layer in range(layers)]
    share = [math.floor(value) for value in line]
    while sum(share) < keep * layers:
        gaps = [value - part for value, part in zip(line, share, strict=True)]
        share[gaps.index(max(gaps))] += 1
    return share


def streaming_llm_kept(tokens: int, keep: int, sinks: int) -> set[int]:
    """Return the first tokens and, for the rest of the budget, the last."""
    return {t for t in range(tokens) if t < sinks or t >= tokens - (keep - sinks)}
