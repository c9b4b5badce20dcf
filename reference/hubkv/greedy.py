"""The theoretical oracle: take, one at a time, the token that adds the most coverage."""

import heapq

import torch
from jaxtyping import Int64
from torch import Tensor

from reference.contract.enforce import requires
from reference.contract.preconditions import affordable
from reference.contract.types import Importance, Whole
from reference.precision import widen


@requires(affordable)
def greedy(
    weights: Importance[Tensor, "*heads tokens tokens"], keep: Whole
) -> Int64[Tensor, "*heads keep"]:
    r"""Select tokens one after the other, each the one with the largest marginal gain.

    $$k_t = \arg\max_{k \in V \setminus S_{t-1}} \Delta(k \mid S_{t-1}),
      \qquad S_t = S_{t-1} \cup \{k_t\}$$

    Args:
        weights: the coverage $w_{i,j}$ that token $j$ gives to place $i$.
        keep: number $B$ of tokens to select, at most the number of tokens.

    Returns:
        The positions of the selected tokens in the order picked: the first $b$ of them are the
        selection of a budget of $b$. Their utility is at least $1 - 1/e$ of the optimum.

    Source:
        HubKV-Greedy. In words (§3.1): "sequential greedy selection provides a useful theoretical
        oracle". Ties are ours (E-U32).

    Reading:
        E-U32: equal gains go to the lowest index, and tokens are selected up to the budget also
        where none gains any more. Gains are summed in float64, and equal only up to that sum.
    """
    rows, picked = _prepare(weights, keep)
    for row, order in zip(rows, picked, strict=True):
        covered = row.new_zeros(len(row))
        left = list(range(len(row)))
        for t in range(keep):
            gains = [_gain(row, covered, k) for k in left]
            best = left.pop(gains.index(max(gains)))
            covered = torch.maximum(covered, row[:, best])
            order[t] = best
    return picked.reshape(*weights.shape[:-2], keep)


@requires(affordable)
def lazy_greedy(
    weights: Importance[Tensor, "*heads tokens tokens"], keep: Whole
) -> Int64[Tensor, "*heads keep"]:
    r"""Select what `greedy` selects, and evaluate few gains.

    $$A \subseteq B \implies \Delta(k \mid A) \ge \Delta(k \mid B)$$

    A gain computed earlier bounds the gain now, so that a token whose renewed gain still leads
    the queue is the best of all, and the others need no evaluation.

    Args:
        weights: the coverage $w_{i,j}$ that token $j$ gives to place $i$.
        keep: number $B$ of tokens to select, at most the number of tokens.

    Returns:
        The positions of the selected tokens in the order picked, equal to those of `greedy`.

    Source:
        HubKV-Greedy, HubKV-2. As printed (Eq. 2), which lets old gains bound new ones; the queue is
        ours.

    Reading:
        E-U32: equal gains, summed in float64, go to the lowest index.
    """
    rows, picked = _prepare(weights, keep)
    for row, order in zip(rows, picked, strict=True):
        covered = row.new_zeros(len(row))
        queue = [(-_gain(row, covered, k), k) for k in range(len(row))]
        heapq.heapify(queue)
        for t in range(keep):
            _, best = heapq.heappop(queue)
            while queue and (entry := (-_gain(row, covered, best), best)) > queue[0]:
                _, best = heapq.heapreplace(queue, entry)
            covered = torch.maximum(covered, row[:, best])
            order[t] = best
    return picked.reshape(*weights.shape[:-2], keep)


def _gain(row: Tensor, covered: Tensor, k: int) -> float:
    """Return what token k adds where `covered` is covered already."""
    return torch.clamp(row[:, k] - covered, min=0).sum(dtype=torch.float64).item()


def _prepare(weights: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    """Return the weights with one axis of heads, and room for the picks of each."""
    heads = weights.shape[:-2].numel()
    rows = widen(weights).reshape(heads, *weights.shape[-2:])
    return rows, torch.zeros(heads, keep, dtype=torch.int64, device=weights.device)
