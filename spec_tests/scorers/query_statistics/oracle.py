"""Mean and covariance one number at a time."""

import math

Vector = list[float]
Matrix = list[Vector]


def moments(queries: Matrix, width: int) -> tuple[Vector, Matrix]:
    """Return mean and biased covariance of queries; zeros if there are none."""
    count = max(1, len(queries))
    mean = [math.fsum(q[c] for q in queries) / count for c in range(width)]
    covariance = [
        [
            math.fsum((q[a] - mean[a]) * (q[b] - mean[b]) for q in queries) / count
            for b in range(width)
        ]
        for a in range(width)
    ]
    return mean, covariance
