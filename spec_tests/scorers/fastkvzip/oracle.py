"""FastKVzip's gate one number at a time, on Python floats."""

import math

from spec_tests.scorers.expected_attention.oracle import dot

Vector = list[float]


def normal(y: Vector, scale: Vector, epsilon: float) -> Vector:
    """Return the vector divided by the root of its mean square."""
    size = math.sqrt(dot(y, y) / len(y) + epsilon)
    return [a * c / size for a, c in zip(scale, y, strict=True)]


def score(x: Vector, gate: dict, head: int, epsilon: float) -> float:
    """Return the score of one token for one key head."""
    key = [dot(row, x) for row in gate["key"][head]]
    key = normal(key, gate["key_scale"], epsilon)
    root, total = math.sqrt(len(key)), 0.0
    for matrix, shift, lift in zip(
        gate["query"][head], gate["query_bias"][head], gate["bias"][head], strict=True
    ):
        query = [dot(row, x) + b for row, b in zip(matrix, shift, strict=True)]
        query = normal(query, gate["query_scale"], epsilon)
        logit = dot(key, query) / root + lift
        rivals = [dot(learned, query) / root for learned in gate["learned"][head]]
        total += 1 / (1 + math.fsum(math.exp(rival - logit) for rival in rivals))
    return total / len(gate["bias"][head])


def loss(scores: Vector, targets: Vector) -> float:
    """Return the mean binary cross-entropy of one head, with logarithms of at least -100."""

    def log(share: float) -> float:
        return max(-100.0, math.log(share)) if share else -100.0

    terms = [-t * log(s) - (1 - t) * log(1 - s) for s, t in zip(scores, targets, strict=True)]
    return math.fsum(terms) / len(terms)
