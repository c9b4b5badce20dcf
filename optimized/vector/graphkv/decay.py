"""The signals: all sources and rounds in one factor, which may leave the range of a float."""

import torch
from torch import Tensor

from reference import errors
from reference.precision import widen

# Factors are multiplied as mantissas of magnitude in [1/2, 1) and exponents: one that overflows
# before the score comes in turns a score of 0 into NaN and a small one into infinity, one that
# underflows loses a large score.
FEW = 7  # so many finite float32 numbers have a product, and 1 - e is 0 or at least 2^-24 away
BLOCK = 512  # a product of so many mantissas is at least 2^-512
FAR = 2**40  # an exponent beyond every float, and far from the end of int64
END = 2040  # the last exponent looked at: 2^±2040 times a mantissa is infinite, or 0


def decay(
    scores: Tensor, weights: Tensor, neighbours: Tensor, rounds: int, strength: float, rule: str
) -> Tensor:
    if rule == "product":
        return _scaled(scores, (-strength * widen(weights)).add_(1), neighbours, rounds)
    if rule == "sum":
        lost = (strength * widen(weights)).masked_fill_(~neighbours, 0)
        factor = 1 - lost.sum(-2, dtype=torch.float64)
    else:
        factor = 1 - strength * widen(_of_the_last_source(weights, neighbours))
    return times(scores, *raised(*factor.double().frexp(), rounds))


def _of_the_last_source(weights: Tensor, neighbours: Tensor) -> Tensor:
    if not weights.numel():
        return weights.new_zeros(neighbours.any(-2).shape)
    count = torch.arange(1, neighbours.shape[-2] + 1, dtype=torch.int32, device=weights.device)
    last = (neighbours * count[:, None]).amax(-2, keepdim=True)
    edge = weights.take_along_dim((last.long() - 1).clamp_(min=0), -2)
    return torch.where(last > 0, edge, 0).squeeze(-2)


def _scaled(scores: Tensor, factors: Tensor, neighbours: Tensor, rounds: int) -> Tensor:
    return times(scores, *raised(*product(factors.masked_fill_(~neighbours, 1)), rounds))


def enhance(
    scores: Tensor, weights: Tensor, neighbours: Tensor, rounds: int, strength: float
) -> Tensor:
    return _scaled(scores, (strength * widen(weights)).add_(1), neighbours, rounds)


def banish(scores: Tensor, neighbours: Tensor, rounds: int) -> Tensor:
    return scores.masked_fill(neighbours.any(-2) & (rounds > 0), -torch.inf)


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
    scaled = scaled.to(scores.dtype)
    errors.in_range("scores", scaled.abs())
    return scaled
