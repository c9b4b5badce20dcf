"""KVzip one number at a time, on Python floats: one batch row without padding."""

import math

from spec_tests.attention.oracle import weights

Head = list[list[float]]


def chunk_scores(
    queries: list[Head], keys: list[Head], echoes: list[Head], start: int, stop: int, sinks: int
) -> list[list[float]]:
    """Return the scores of every token of every key head: 0 outside the chunk."""
    out = []
    for head, (own, echo) in enumerate(zip(keys, echoes, strict=True)):
        group = len(queries) // len(keys)
        best = [0.0] * len(own)
        for member in queries[head * group : (head + 1) * group]:
            for back, query in enumerate(reversed(member)):
                seen = own[:sinks] + own[start:stop] + echo[: len(echo) - back]
                drawn = weights(query, seen, 1 / math.sqrt(len(query)))
                for j in range(start, min(stop, len(own))):
                    best[j] = max(best[j], drawn[sinks + j - start])
        out.append(best)
    return out
