"""The greedy oracle, all gains at once."""

import torch
from torch import Tensor

from optimized._doubles import doubles_on_cpu
from optimized.vector.hubkv.coverage import gains
from reference.contract.enforce import may_branch_on_values
from reference.precision import widen


@doubles_on_cpu
def greedy(weights: Tensor, keep: int) -> Tensor:
    weights = widen(weights)
    covered = weights.new_zeros(weights.shape[:-1])
    kept = torch.zeros_like(covered, dtype=torch.bool)
    picked = torch.zeros(*weights.shape[:-2], keep, dtype=torch.int64, device=weights.device)
    for t in range(keep):
        best = most_gaining(weights, covered, kept)
        picked[..., t] = best[..., 0]
        kept.scatter_(-1, best, True)
        column = weights.take_along_dim(best[..., None, :], -1)[..., 0]
        covered = torch.maximum(covered, column)
    return picked


def most_gaining(weights: Tensor, covered: Tensor, kept: Tensor) -> Tensor:
    """Return the token of each head that is not kept and gains most, in float64."""
    tokens = weights.shape[-1]
    if may_branch_on_values(weights) and weights.dtype == torch.float32 and weights.is_cpu:
        rough = gains(weights, covered, torch.float32).masked_fill_(kept, -torch.inf)
        # no sum of as many terms is further off, so that the best token is among the leading ones
        most = rough.amax(-1, keepdim=True)
        lower = most - 2 * tokens * torch.finfo(torch.float32).eps * most
        leading = ~(rough < lower)  # every one where a sum is infinite
        places = leading.reshape(-1, tokens).any(0).nonzero()[:, 0]
        if len(places) < tokens // 8:
            exact = gains(weights.index_select(-1, places), covered, torch.float64)
            exact.masked_fill_(kept.index_select(-1, places), -torch.inf)
            return places[exact.argmax(-1, keepdim=True)]
    left = gains(weights, covered, torch.float64).masked_fill_(kept, -torch.inf)
    return left.argmax(-1, keepdim=True)


def lazy_greedy(weights: Tensor, keep: int) -> Tensor:
    # a priority queue is sequential; computing all gains at once is one pass over the weights
    return greedy(weights, keep)
