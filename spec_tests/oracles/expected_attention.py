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


def moments(queries: Matrix, width: int) -> tuple[Vector, Matrix]:
    """Return mean and biased covariance of some queries, zeros of none."""
    each = max(1, len(queries))
    mean = [math.fsum(q[c] for q in queries) / each for c in range(width)]
    covariance = [
        [
            math.fsum((q[a] - mean[a]) * (q[b] - mean[b]) for q in queries) / each
            for b in range(width)
        ]
        for a in range(width)
    ]
    return mean, covariance


def rotated(vector: Vector, frequencies: Vector, position: int) -> Vector:
    """Return a vector after the rotary embedding, halves turning together."""
    half = len(frequencies)
    out = [0.0] * (2 * half)
    for i, frequency in enumerate(frequencies):
        cosine, sine = math.cos(position * frequency), math.sin(position * frequency)
        out[i] = vector[i] * cosine - vector[half + i] * sine
        out[half + i] = vector[half + i] * cosine + vector[i] * sine
    return out


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
