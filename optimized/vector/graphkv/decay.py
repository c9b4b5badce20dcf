"""The signals: all sources and rounds in one factor, which may leave the range of a float."""

import torch
from torch import Tensor

from optimized.vector.graphkv.wide_range import product, raised, times
from reference.precision import widen


def decay(
    scores: Tensor,
    weights: Tensor,
    neighbours: Tensor,
    rounds: int = 1,
    strength: float = 1.0,
    rule: str = "product",
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
    scores: Tensor, weights: Tensor, neighbours: Tensor, rounds: int = 1, strength: float = 1.0
) -> Tensor:
    return _scaled(scores, (strength * widen(weights)).add_(1), neighbours, rounds)


def banish(scores: Tensor, neighbours: Tensor, rounds: int = 1) -> Tensor:
    return scores.masked_fill(neighbours.any(-2) & (rounds > 0), -torch.inf)
