"""CAKE one number at a time, on Python floats: one batch row without padding."""

import math

from spec_tests.attention.oracle import weights

Head = list[list[float]]


def observed(queries: Head, keys: Head, window: int) -> Head:
    """Return the weights of each of the last queries on the tokens before the window."""
    seen = []
    for back in range(window, 0, -1):
        visible = keys[: len(keys) - back + 1]
        row = weights(queries[len(queries) - back], visible, 1 / math.sqrt(len(keys[0])))
        seen.append(row[: len(keys) - window])
    return seen


def variance(column: list[float]) -> float:
    """Return the unbiased variance."""
    mean = math.fsum(column) / len(column)
    return math.fsum((a - mean) ** 2 for a in column) / (len(column) - 1)


def scores(
    queries: list[Head], keys: list[Head], window: int, gamma: float, kernel: int
) -> list[list[float]]:
    """Return the score of every token of every key head."""
    out = []
    for head, own in enumerate(keys):
        group = len(queries) // len(keys)
        members = queries[head * group : (head + 1) * group]
        old = len(own) - window
        total = [0.0] * len(own)
        for member in members if old > 0 else []:
            columns = list(zip(*observed(member, own, window), strict=True))
            raw = [math.fsum(c) / window + gamma * variance(list(c)) for c in columns]
            for t in range(old):
                near = [raw[i] for i in range(old) if abs(i - t) <= kernel // 2]
                total[t] += math.fsum(near) / kernel / group
        out.append(total)
    return out


def preference(
    queries: list[Head], keys: list[Head], window: int, tau1: float, tau2: float
) -> float:
    """Return the entropy times the variance, each raised to its power."""
    if len(keys[0]) <= window:
        return 0.0
    group = len(queries) // len(keys)
    entropy = change = 0.0
    for head, member in enumerate(queries):
        for column in zip(*observed(member, keys[head // group], window), strict=True):
            entropy -= math.fsum(a * math.log(a + 1e-10) for a in column)
            change += variance(list(column))
    return max(entropy, 0.0) ** (1 / tau1) * change ** (1 / tau2)
