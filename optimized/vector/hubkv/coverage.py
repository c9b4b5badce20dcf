"""The coverage objective over all tokens and places at once."""

import torch
from torch import Tensor

import reference
from optimized._composed import composed
from reference import errors
from reference.careful import balanced
from reference.precision import widen


def coverage_weights(scores: Tensor, kernel: Tensor) -> Tensor:
    scores = widen(scores)
    places = torch.arange(scores.shape[-1], device=kernel.device)
    spread, _ = balanced(kernel.to(scores.dtype)[(places[:, None] - places).abs()])
    return scores[..., None, :] * (spread / spread.sum(-1, keepdim=True)).mT


def marginal_gain(weights: Tensor, kept: Tensor) -> Tensor:
    weights = widen(weights)
    found = gains(weights, _covered(weights, kept)).to(weights.dtype)
    errors.in_range("weights", found)
    return found


def overlap(weights: Tensor, hub: int) -> Tensor:
    # summed from one memory layout, in one order: the part never exceeds the whole
    own, power = balanced(widen(weights).mT.contiguous())  # a token's places in a row
    scores = own.sum(-1)
    shared = torch.minimum(own, own[..., hub : hub + 1, :] * power[..., hub : hub + 1, :] / power)
    shared = shared.sum(-1)
    nothing = scores == 0
    return (shared / scores.masked_fill(nothing, 1)).masked_fill(nothing, 0).clamp(max=1)


def gains(weights: Tensor, covered: Tensor) -> Tensor:
    """Return what each token adds, in float64, where `covered` is covered already."""
    return (weights - covered[..., None]).clamp(min=0).sum(-2, dtype=torch.float64)


def _covered(weights: Tensor, kept: Tensor) -> Tensor:
    if weights.shape[-1] == 0:
        return weights.new_zeros(weights.shape[:-1])
    return weights.masked_fill(~kept[..., None, :], 0).amax(-1)


coverage = composed(reference.coverage)
