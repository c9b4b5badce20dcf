"""The pooled attention of a window one number at a time, on rows without padding."""

import math

from spec_tests.scorers.h2o.oracle import Head, draws


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
