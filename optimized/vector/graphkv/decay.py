"""The signals as one factor per token, over all sources and rounds, in float64."""

import torch
from torch import Tensor

from reference._validation import checks
from reference.precision import widen


def decay(
    scores: Tensor, weights: Tensor, neighbours: Tensor, rounds: int, strength: float, rule: str
) -> Tensor:
    return scaled(scores, lasting(weights, neighbours, strength, rule), rounds)


def enhance(
    scores: Tensor, weights: Tensor, neighbours: Tensor, rounds: int, strength: float
) -> Tensor:
    return decay(scores, weights, neighbours, rounds, -strength, "product")


def banish(scores: Tensor, neighbours: Tensor, rounds: int) -> Tensor:
    return scores.masked_fill(neighbours.any(-2) & (rounds > 0), -torch.inf)


def lasting(
    weights: Tensor,
    neighbours: Tensor,
    strength: float,
    rule: str,
    before: Tensor | float = 1.0,
) -> Tensor:
    """Return the factor of one round for each token, given the factor `before` these sources."""
    if rule == "evict":
        return torch.where(neighbours.any(-2), 0, before)
    losses = strength * widen(weights)
    if rule == "product":
        kept = (1 - losses).masked_fill_(~neighbours, 1)
        return before * kept.prod(-2, dtype=torch.float64)
    if rule == "sum":
        return before - losses.masked_fill_(~neighbours, 0).sum(-2, dtype=torch.float64)
    kept, reached = _of_the_last_source(1 - losses, neighbours)
    return torch.where(reached, kept.double(), before)


def scaled(scores: Tensor, factor: Tensor, rounds: int) -> Tensor:
    """Return scores times the factor of every round, rounded once to the dtype of the scores."""
    product = (scores.double() * factor**rounds).to(scores.dtype)
    checks.refuse_overflow("scores", product.abs())
    return product


def _of_the_last_source(weights: Tensor, neighbours: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weight of the last source that reaches each token, and whether there is one."""
    reached = neighbours.any(-2)
    if not weights.numel():
        return weights.new_zeros(reached.shape), reached
    count = torch.arange(1, neighbours.shape[-2] + 1, dtype=torch.int32, device=weights.device)
    last = (neighbours * count[:, None]).amax(-2, keepdim=True)
    edge = weights.take_along_dim((last.long() - 1).clamp_(min=0), -2)
    return edge.squeeze(-2), reached
