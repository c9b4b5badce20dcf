"""Expected attention one number at a time, on Python floats."""

import math

Vector = list[float]
Matrix = list[Vector]


def dot(left: Vector, right: Vector) -> float:
    """Return the inner product."""
    return math.fsum(a * b for a, b in zip(left, right, strict=True))


def product(left: Matrix, right: Matrix) -> Matrix:
    """Return the matrix product."""
    return [[dot(row, list(column)) for column in zip(*right, strict=True)] for row in left]


def scores(
    means: Matrix,
    covariances: list[Matrix],
    keys: list[Matrix],
    values: list[Matrix],
    rotation: Matrix,
    epsilon: float,
) -> list[Vector]:
    """Return the score of every token of every key head."""
    out = []
    for head, (own, contents) in enumerate(zip(keys, values, strict=True)):
        group = len(means) // len(keys)
        drawn = [0.0] * len(own)
        for member in range(head * group, (head + 1) * group):
            mean = [dot(row, means[member]) for row in rotation]
            turned = [list(row) for row in zip(*rotation, strict=True)]
            covariance = product(product(rotation, covariances[member]), turned)
            logits = []
            for key in own:
                spread = dot(key, [dot(row, key) for row in covariance])
                logits.append(dot(key, mean) / math.sqrt(len(key)) + spread / (2 * len(key)))
            highest = max(logits, default=0.0)
            powers = [math.exp(z - highest) for z in logits]
            for j, power in enumerate(powers):
                drawn[j] += power / math.fsum(powers) / group
        norms = [math.sqrt(dot(value, value)) for value in contents]
        out.append([(a + epsilon) * n for a, n in zip(drawn, norms, strict=True)])
    return out
