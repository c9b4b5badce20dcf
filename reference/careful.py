"""Statistics where the printed formula would round badly: exact of equal numbers, and of any size.

A square of a float32 number overflows from 2^64 on and vanishes below 2^-75, though its root need
not: what is squared is divided by a power of two first, which is exact, and its root multiplied.
"""

import torch
from torch import Tensor


def mean(x: Tensor) -> Tensor:
    """Return the mean along the last axis, which stays: of equal numbers theirs, of none 0."""
    low = lowest(x)
    above, power = balanced(x - low)
    return low + above.sum(-1, keepdim=True) / max(1, x.shape[-1]) * power


def deviation(x: Tensor) -> Tensor:
    """Return the population deviation of numbers near one, as `mean`: of equal ones 0."""
    above = x - lowest(x)
    return root(mean((above - mean(above)) ** 2))


def length(x: Tensor) -> Tensor:
    """Return the Euclidean length along the last axis, which goes."""
    x, power = balanced(x)
    return root(x.square().sum(-1)) * power[..., 0]


def root(x: Tensor) -> Tensor:
    """Return the square root; its gradient at 0, where it has none, is 0."""
    nothing = x == 0
    return x.masked_fill(nothing, 1).sqrt().masked_fill(nothing, 0)


def lowest(x: Tensor) -> Tensor:
    """Return the least number along the last axis, which stays; 0 of none."""
    return x.amin(-1, keepdim=True) if x.shape[-1] else x.sum(-1, keepdim=True)


def balanced(x: Tensor) -> tuple[Tensor, Tensor]:
    """Divide by the power of two of the largest along the last axis, and return that as well."""
    if not x.shape[-1]:
        return x, x.new_ones(*x.shape[:-1], 1)
    # the reciprocal of a power below `tiny` overflows
    power = power_of_two(x.abs().amax(-1, keepdim=True)).clamp(min=torch.finfo(x.dtype).tiny)
    return x / power, power


def power_of_two(x: Tensor) -> Tensor:
    """Return the largest power of two that is at most `x`, which is at least 0; 1 for 0."""
    x = x.detach()  # a step function of `x`, with no gradient of its own
    return torch.where(x > 0, x / (2 * torch.frexp(x).mantissa), 1)
