"""The coverage objective and its greedy oracle without loops over tokens, heads or places."""

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from reference import errors
from reference.hubkv import errors as refuse
from reference.precision import widen


def window_kernel(
    tokens: int, radius: int, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "tokens"]:
    errors.whole("tokens", tokens)
    errors.whole("radius", radius)
    errors.floating_dtype("dtype", dtype)
    return (torch.arange(tokens) <= min(radius, tokens)).to(dtype)


def coverage_weights(
    scores: Float[Tensor, "*heads tokens"], kernel: Float[Tensor, "tokens"]
) -> Float[Tensor, "*heads tokens tokens"]:
    errors.importance("scores", scores)
    errors.importance("kernel", kernel)
    errors.shaped("kernel", kernel, scores.shape[-1:])
    scores = widen(scores)
    places = torch.arange(scores.shape[-1], device=kernel.device)
    spread = kernel.to(scores.dtype)[(places[:, None] - places).abs()]
    totals = spread.sum(0)
    refuse.covering("kernel", totals)
    return scores[..., None, :] * spread / totals


def coverage(
    weights: Float[Tensor, "*heads tokens tokens"], kept: Bool[Tensor, "*heads tokens"]
) -> Float[Tensor, "*heads"]:
    _check(weights)
    errors.boolean("kept", kept, weights.shape[:-1])
    return _covered(widen(weights), kept).sum(-1)


def marginal_gain(
    weights: Float[Tensor, "*heads tokens tokens"], kept: Bool[Tensor, "*heads tokens"]
) -> Float[Tensor, "*heads tokens"]:
    _check(weights)
    errors.boolean("kept", kept, weights.shape[:-1])
    weights = widen(weights)
    return _gains(weights, _covered(weights, kept)).to(weights.dtype)


def overlap(
    weights: Float[Tensor, "*heads tokens tokens"], hub: int
) -> Float[Tensor, "*heads tokens"]:
    _check(weights)
    errors.whole("hub", hub, 0, weights.shape[-1] - 1)
    # summed from one memory layout, in one order: the part never exceeds the whole
    weights = widen(weights).contiguous()
    scores = weights.sum(-2)
    shared = torch.minimum(weights, weights[..., hub : hub + 1]).contiguous().sum(-2)
    return torch.where(scores > 0, shared / scores, 0).clamp(max=1)


def greedy(
    weights: Float[Tensor, "*heads tokens tokens"], keep: int
) -> Int64[Tensor, "*heads keep"]:
    _check(weights)
    errors.whole("keep", keep, 0, weights.shape[-1])
    weights = widen(weights)
    covered = weights.new_zeros(weights.shape[:-1])
    kept = torch.zeros_like(covered, dtype=torch.bool)
    picked = torch.zeros(*weights.shape[:-2], keep, dtype=torch.int64, device=weights.device)
    for t in range(keep):
        gains = _gains(weights, covered).masked_fill(kept, -torch.inf)
        best = gains.argmax(-1, keepdim=True)
        picked[..., t] = best[..., 0]
        kept.scatter_(-1, best, True)
        column = weights.take_along_dim(best[..., None, :], -1)[..., 0]
        covered = torch.maximum(covered, column)
    return picked


def lazy_greedy(
    weights: Float[Tensor, "*heads tokens tokens"], keep: int
) -> Int64[Tensor, "*heads keep"]:
    # a queue helps one processor; all gains at once are one pass over the weights
    return greedy(weights, keep)


def _covered(weights: Tensor, kept: Tensor) -> Tensor:
    if weights.shape[-1] == 0:
        return weights.new_zeros(weights.shape[:-1])
    return weights.masked_fill(~kept[..., None, :], 0).amax(-1)


def _gains(weights: Tensor, covered: Tensor) -> Tensor:
    return (weights - covered[..., None]).clamp(min=0).sum(-2, dtype=torch.float64)


def _check(weights: Tensor) -> None:
    errors.floating("weights", weights, axes=2)
    errors.importance("weights", weights)
    errors.square("weights", weights)
