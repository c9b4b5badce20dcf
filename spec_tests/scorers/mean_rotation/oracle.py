"""The rotary embedding one number at a time."""

import math

Vector = list[float]


def rotated(vector: Vector, frequencies: Vector, position: int) -> Vector:
    """Return a vector after the rotary embedding, which pairs channels of the two halves."""
    half = len(frequencies)
    out = [0.0] * (2 * half)
    for i, frequency in enumerate(frequencies):
        cosine, sine = math.cos(position * frequency), math.sin(position * frequency)
        out[i] = vector[i] * cosine - vector[half + i] * sine
        out[half + i] = vector[half + i] * cosine + vector[i] * sine
    return out
