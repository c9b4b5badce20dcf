"""The signals: all sources and rounds in one factor, in float64."""

import torch
from torch import Tensor

from reference import errors
from reference.precision import widen


def decay(
    scores: Tensor, weights: Tensor, neighbours: Tensor, rounds: int, strength: float, rule: str
) -> Tensor:
    if rule == "product":
        return _scaled(scores, -strength * widen(weights), neighbours, rounds)
    if rule == "sum":
        lost = (strength * widen(weights)).masked_fill_(~neighbours, 0)
        return _times(scores, 1 - lost.sum(-2, dtype=torch.float64), rounds)
    lost = strength * widen(_of_the_last_source(weights, neighbours))
    return _times(scores, (1 - lost).double(), rounds)


def enhance(
    scores: Tensor, weights: Tensor, neighbours: Tensor, rounds: int, strength: float
) -> Tensor:
    return _scaled(scores, strength * widen(weights), neighbours, rounds)


def banish(scores: Tensor, neighbours: Tensor, rounds: int) -> Tensor:
    return scores.masked_fill(neighbours.any(-2) & (rounds > 0), -torch.inf)


def _of_the_last_source(weights: Tensor, neighbours: Tensor) -> Tensor:
    if not weights.numel():
        return weights.new_zeros(neighbours.any(-2).shape)
    count = torch.arange(1, neighbours.shape[-2] + 1, dtype=torch.int32, device=weights.device)
    last = (neighbours * count[:, None]).amax(-2, keepdim=True)
    edge = weights.take_along_dim((last.long() - 1).clamp_(min=0), -2)
    return torch.where(last > 0, edge, 0).squeeze(-2)


def _scaled(scores: Tensor, gains: Tensor, neighbours: Tensor, rounds: int) -> Tensor:
    factors = gains.add_(1).masked_fill_(~neighbours, 1)
    return _times(scores, factors.prod(-2, dtype=torch.float64), rounds)


def _times(scores: Tensor, factor: Tensor, rounds: int) -> Tensor:
    """Multiply by a factor a round, and round once to the dtype of the scores."""
    scaled = (scores.double() * factor**rounds).to(scores.dtype)
    errors.in_range("scores", scaled.abs())
    return scaled
