"""Other correct ways to select greedily."""

import heapq

import numpy as np
import torch

from spec_tests.numpy_adapter import among_tensors
from spec_tests.variants.registry import register_variant


@register_variant("greedy")
def all_heads_at_once(weights, keep):
    """Compute all gains of all heads in each step; `argmax` takes the first of equals."""
    weights = weights.double()
    covered = torch.zeros_like(weights[..., :1])
    left = torch.ones(weights.shape[:-1], dtype=torch.bool)
    picks = []
    for _ in range(keep):
        gains = (weights - covered).clamp(min=0).sum(-2).masked_fill(~left, -1)
        pick = gains.argmax(-1, keepdim=True)
        left = left.scatter(-1, pick, False)
        column = weights.gather(-1, pick[..., None, :].expand_as(covered))
        covered = torch.maximum(covered, column)
        picks.append(pick)
    empty = torch.zeros(*weights.shape[:-2], 0, dtype=torch.int64)
    return torch.cat([empty, *picks], -1)


@among_tensors
def step_by_step(weights, keep):
    """Select for one head after another, in NumPy."""
    picks = np.zeros((*weights.shape[:-2], keep), np.int64)
    for head in np.ndindex(weights.shape[:-2]):
        columns = weights[head].astype(float).T
        covered = np.zeros(len(columns))
        left = [*range(len(columns))]
        for t in range(keep):
            best = max(left, key=lambda k: (np.maximum(columns[k] - covered, 0).sum(), -k))
            left.remove(best)
            covered = np.maximum(covered, columns[best])
            picks[*head, t] = best
    return picks


register_variant("greedy", "values")(step_by_step)
register_variant("lazy_greedy", "values")(step_by_step)
register_variant("lazy_greedy")(all_heads_at_once)


@register_variant("lazy_greedy")
def by_a_queue(weights, keep):
    """Use gains of earlier steps as upper bounds, in a queue."""
    picks = torch.zeros(*weights.shape[:-2], keep, dtype=torch.int64)
    for head in np.ndindex(weights.shape[:-2]):
        columns = weights[head].double().T
        covered = torch.zeros(len(columns), dtype=torch.float64)
        queue = [(-float(column.sum()), k, 0) for k, column in enumerate(columns)]
        heapq.heapify(queue)
        for t in range(keep):
            while queue[0][2] < t:
                k = heapq.heappop(queue)[1]
                heapq.heappush(queue, (-float((columns[k] - covered).relu().sum()), k, t))
            picks[(*head, t)] = best = heapq.heappop(queue)[1]
            covered = torch.maximum(covered, columns[best])
    return picks
