"""Statistics where the printed formula would round badly: exact of equal numbers."""

from torch import Tensor


def mean(x: Tensor) -> Tensor:
    """Return the mean along the last axis, which stays: of equal numbers theirs, of none 0."""
    low = lowest(x)
    # divided before the sum, which therefore cannot overflow
    return low + ((x - low) / max(1, x.shape[-1])).sum(-1, keepdim=True)


def deviation(x: Tensor) -> Tensor:
    """Return the population deviation along the last axis, which stays: of equal numbers 0."""
    above = x - lowest(x)
    return mean((above - mean(above)) ** 2).sqrt()


def lowest(x: Tensor) -> Tensor:
    """Return the least number along the last axis, which stays; 0 of none."""
    return x.amin(-1, keepdim=True) if x.shape[-1] else x.sum(-1, keepdim=True)
