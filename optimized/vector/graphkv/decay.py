"""The signals as one factor per token, over all sources and rounds, rounded once."""

import torch
from torch import Tensor

from optimized._doubles import doubles_on_cpu
from reference.contract import checks
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


def lasting(weights: Tensor, neighbours: Tensor, strength: float, rule: str) -> Tensor:
    """Return the factor of one round for each token."""
    if rule == "product":
        edges = widen(weights) * neighbours.view(torch.uint8)
        return torch.rsub(edges, 1, alpha=strength).prod(-2)
    if rule == "sum":
        return 1 - strength * (widen(weights) * neighbours.view(torch.uint8)).sum(-2)
    kept, reached = _of_the_last_source(1 - strength * widen(weights), neighbours)
    return torch.where(reached, kept, 1)


@doubles_on_cpu
def scaled(scores: Tensor, factor: Tensor, rounds: int) -> Tensor:
    """Return scores times the factor of every round, rounded once to the dtype of the scores."""
    product = (scores.double() * (factor if rounds == 1 else factor**rounds)).to(scores.dtype)
    checks.refuse_overflow("scores", product)
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


def lower(factor: Tensor, weights: Tensor, places: Tensor, strength: float, rule: str) -> Tensor:
    """Return `factor` [graphs, tokens] after sources with edges `weights` to the tokens `places`.

    An edge of minus infinity reaches nothing.
    """
    reached = weights > -torch.inf
    left = 1 - strength * weights
    if rule == "product":
        return multiply_at(factor, places, left.where(reached, 1).to(factor))
    left, reached, places = left.flatten(-2), reached.flatten(-2), places.flatten(-2)
    if rule == "sum":
        return factor.scatter_add(-1, places, (left - 1).where(reached, 0).to(factor))
    if rule == "evict":
        return factor.scatter_reduce(-1, places, (~reached).to(factor), "amin")
    ranks = torch.arange(1, places.shape[-1] + 1, device=places.device).where(reached, 0)
    last = torch.zeros_like(factor, dtype=torch.int64).scatter_reduce(-1, places, ranks, "amax")
    final = left.gather(-1, (last - 1).clamp(min=0))
    return torch.where(last > 0, final.to(factor), factor)


def multiply_at(factor: Tensor, places: Tensor, numbers: Tensor) -> Tensor:
    """Return `factor` [graphs, tokens] times the numbers of each source at its places.

    CUDA scatters products in no fixed order, which PyTorch's deterministic mode refuses.
    """
    if factor.is_cpu or not torch.are_deterministic_algorithms_enabled():
        return factor.scatter_reduce(-1, places.flatten(-2), numbers.flatten(-2), "prod")
    for columns, numbers_of_source in zip(places.unbind(-2), numbers.unbind(-2), strict=True):
        factor = factor.scatter(-1, columns, factor.gather(-1, columns) * numbers_of_source)
    return factor
