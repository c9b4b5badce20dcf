"""The coverage objective over all tokens and places at once."""

import torch
from torch import Tensor

import reference
from optimized._rebind import rebind
from reference.precision import widen


def coverage_weights(scores: Tensor, kernel: Tensor) -> Tensor:
    scores = widen(scores)
    places = torch.arange(scores.shape[-1], device=kernel.device)
    spread = kernel.to(scores.dtype)[(places[:, None] - places).abs()]
    return scores[..., None, :] * (spread / spread.sum(-1, keepdim=True)).mT


def marginal_gain(weights: Tensor, kept: Tensor) -> Tensor:
    weights = widen(weights)
    return (weights - _covered(weights, kept)[..., None]).relu().sum(-2)


def overlap(weights: Tensor, hub: int) -> Tensor:
    weights = widen(weights)
    scores = weights.sum(-2)
    shared = torch.minimum(weights, weights[..., hub : hub + 1]).sum(-2)
    return torch.where(scores > 0, shared / scores, 0)


def gains(weights: Tensor, covered: Tensor) -> Tensor:
    """Return the gain of each token over what is `covered`, in float64."""
    return (weights - covered[..., None]).clamp(min=0).sum(-2, dtype=torch.float64)


def _covered(weights: Tensor, kept: Tensor) -> Tensor:
    if weights.shape[-1] == 0:
        return weights.new_zeros(weights.shape[:-1])
    return (weights * kept[..., None, :]).amax(-1)


coverage = rebind(reference.coverage, _covered=_covered)
