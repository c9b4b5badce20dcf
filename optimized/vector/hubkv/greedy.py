"""The greedy oracle, all gains at once."""

import torch
from torch import Tensor

from optimized.vector.hubkv.coverage import gains
from reference.precision import widen


def greedy(weights: Tensor, keep: int) -> Tensor:
    weights = widen(weights)
    covered = weights.new_zeros(weights.shape[:-1])
    kept = torch.zeros_like(covered, dtype=torch.bool)
    picked = torch.zeros(*weights.shape[:-2], keep, dtype=torch.int64, device=weights.device)
    for t in range(keep):
        left = gains(weights, covered).masked_fill(kept, -torch.inf)
        best = left.argmax(-1, keepdim=True)
        picked[..., t] = best[..., 0]
        kept.scatter_(-1, best, True)
        column = weights.take_along_dim(best[..., None, :], -1)[..., 0]
        covered = torch.maximum(covered, column)
    return picked


def lazy_greedy(weights: Tensor, keep: int) -> Tensor:
    # a priority queue is sequential; computing all gains at once is one pass over the weights
    return greedy(weights, keep)
