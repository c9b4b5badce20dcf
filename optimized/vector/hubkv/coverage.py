"""The coverage objective over all tokens and places at once."""

import torch
from torch import Tensor

from reference.precision import widen, widest

WEIGHTS = 1 << 19
"""Weights at a time, so that intermediate results fit into a CPU's cache."""


def coverage_weights(scores: Tensor, kernel: Tensor) -> Tensor:
    scores = widen(scores)
    places = torch.arange(scores.shape[-1], device=kernel.device)
    spread = kernel.to(scores.dtype)[(places[:, None] - places).abs()]
    return scores[..., None, :] * (spread / spread.sum(-1, keepdim=True)).mT


def marginal_gain(weights: Tensor, kept: Tensor) -> Tensor:
    return gains(weights, _covered(weights, kept), widest(weights))


def overlap(weights: Tensor, hub: int) -> Tensor:
    best = widen(weights[..., hub : hub + 1])
    parts = weights.split(columns_at_a_time(weights), -1)
    both = [(torch.minimum(widen(part), best).sum(-2), widen(part).sum(-2)) for part in parts]
    shared, scores = (torch.cat(sums, -1) for sums in zip(*both, strict=True))
    return torch.where(scores > 0, shared / scores, 0)


def columns_at_a_time(weights: Tensor) -> int:
    """Return how many columns, or as many rows, are computed at a time."""
    return max(1, WEIGHTS // max(1, weights.shape[:-1].numel()))


def gains(weights: Tensor, covered: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the gain of each token over what is `covered`, summed in a dtype."""
    parts, covered = weights.split(columns_at_a_time(weights), -1), covered[..., None]
    return torch.cat([(widen(part) - covered).relu_().sum(-2, dtype=dtype) for part in parts], -1)


def _covered(weights: Tensor, kept: Tensor) -> Tensor:
    if weights.shape[-1] == 0:
        return weights.new_zeros(weights.shape[:-1], dtype=widest(weights))
    taken, parts = kept[..., None, :], weights.split(columns_at_a_time(weights), -2)
    return torch.cat([(widen(part) * taken).amax(-1) for part in parts], -1)


def coverage(weights: Tensor, kept: Tensor) -> Tensor:
    return _covered(weights, kept).sum(-1)
