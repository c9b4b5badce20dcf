"""The coverage objective over all tokens and places at once."""

import torch
from torch import Tensor

import reference
from optimized._rebind import rebind
from reference.precision import widen

WEIGHTS = 1 << 19
"""Weights at a time, so that intermediate results fit into a CPU's cache."""


def coverage_weights(scores: Tensor, kernel: Tensor) -> Tensor:
    scores = widen(scores)
    places = torch.arange(scores.shape[-1], device=kernel.device)
    spread = kernel.to(scores.dtype)[(places[:, None] - places).abs()]
    return scores[..., None, :] * (spread / spread.sum(-1, keepdim=True)).mT


def marginal_gain(weights: Tensor, kept: Tensor) -> Tensor:
    weights = widen(weights)
    return gains(weights, _covered(weights, kept), weights.dtype)


def overlap(weights: Tensor, hub: int) -> Tensor:
    weights = widen(weights)
    best, scores = weights[..., hub : hub + 1], weights.sum(-2)
    parts = weights.split(columns_at_a_time(weights), -1)
    shared = torch.cat([torch.minimum(part, best).sum(-2) for part in parts], -1)
    return torch.where(scores > 0, shared / scores, 0)


def columns_at_a_time(weights: Tensor) -> int:
    """Return how many columns, or as many rows, are computed at a time."""
    return max(1, WEIGHTS // max(1, weights.shape[:-1].numel()))


def gains(weights: Tensor, covered: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the gain of each token over what is `covered`, summed in a dtype."""
    parts, covered = weights.split(columns_at_a_time(weights), -1), covered[..., None]
    return torch.cat([(part - covered).relu_().sum(-2, dtype=dtype) for part in parts], -1)


def _covered(weights: Tensor, kept: Tensor) -> Tensor:
    if weights.shape[-1] == 0:
        return weights.new_zeros(weights.shape[:-1])
    taken, parts = kept[..., None, :], weights.split(columns_at_a_time(weights), -2)
    return torch.cat([(part * taken).amax(-1) for part in parts], -1)


coverage = rebind(reference.coverage, _covered=_covered)
