"""Products beyond the range of a float: a mantissa of magnitude in [1/2, 1) and an exponent.

A factor that overflows before the score comes in turns a score of 0 into NaN and a small one into
infinity; one that underflows loses a large score.
"""

import torch
from torch import Tensor

FEW = 7  # so many finite float32 numbers have a product, and 1 - e is 0 or at least 2^-24 away
BLOCK = 512  # a product of so many mantissas is at least 2^-512
FAR = 2**40  # an exponent beyond every float, and far from the end of int64
END = 2040  # the last exponent looked at: 2^±2040 times a mantissa is infinite, or 0


def product(factors: Tensor) -> tuple[Tensor, Tensor]:
    """Multiply factors 1 - e along axis -2, in float64."""
    if factors.dtype == torch.float32:
        factors = blocks(factors, FEW).prod(-2, dtype=torch.float64)
    mantissa, exponent = blocks(factors, BLOCK).frexp()
    mantissa, more = mantissa.prod(-2).frexp()
    exponent = exponent.sum((-3, -2)) + more.sum(-2)
    mantissa, more = mantissa.prod(-2).frexp()
    return mantissa, exponent + more


def blocks(factors: Tensor, most: int) -> Tensor:
    """Split axis -2 into blocks of one length, at most `most`, filled up with ones."""
    number = -(-factors.shape[-2] // most) or 1
    missing = -factors.shape[-2] % number
    if missing:
        factors = torch.nn.functional.pad(factors, (0, 0, 0, missing), value=1.0)
    return factors.unflatten(-2, (number, factors.shape[-2] // number))


def raised(mantissa: Tensor, exponent: Tensor, rounds: int) -> tuple[Tensor, Tensor]:
    """Raise to a power by squaring."""
    if rounds == 0:
        return torch.ones_like(mantissa), torch.zeros_like(exponent, dtype=torch.int64)
    half, twice = raised(mantissa, exponent, rounds // 2)
    mantissa, more = (half * half * (mantissa if rounds % 2 else 1)).frexp()
    exponent = 2 * twice + more + (exponent if rounds % 2 else 0)
    return mantissa, exponent.clamp(-FAR, FAR)


def times(scores: Tensor, mantissa: Tensor, exponent: Tensor) -> Tensor:
    """Multiply, and round once to the dtype of the scores."""
    own, shift = scores.double().frexp()
    exponent = (exponent + shift).clamp(-END, END)
    half = exponent // 2
    scaled = (own * mantissa) * half.double().exp2() * (exponent - half).double().exp2()
    return scaled.to(scores.dtype)
