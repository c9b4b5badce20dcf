"""Expected attention, all heads at once."""

import math

import torch
from torch import Tensor

from optimized.vector.scorers._padding import protected_ends
from reference import QueryStatistics, Scored
from reference.precision import widest
from reference.scorers._padding import valid_or_all

# tokens at a time, which bounds the memory of the quadratic form
TOKENS = 1024


def expected_attention(
    statistics: QueryStatistics,
    keys: Tensor,
    values: Tensor,
    rotation: Tensor,
    sinks: int,
    epsilon: float,
    valid: Tensor | None,
) -> Scored:
    *batch, kv_heads, _, width = keys.shape
    mask = valid_or_all(valid, keys)
    exact = widest(keys, statistics.mean, statistics.covariance, rotation, values)
    turn = rotation.to(exact)[..., None, :, :]
    mean = (turn @ statistics.mean.to(exact)[..., None])[..., 0]
    covariance = turn @ statistics.covariance.to(exact) @ turn.mT
    group = statistics.mean.shape[-2] // max(1, kv_heads)
    shape = (*batch, kv_heads, group, width)
    logits = _logits(keys.to(exact), mean.reshape(shape), covariance.reshape(*shape, width))
    unseen = ~(mask & (mask.cumsum(-1) > sinks))[..., None, :]
    logits = logits.masked_fill(unseen[..., None, :], -torch.inf)
    weights = logits.softmax(-1).masked_fill(unseen[..., None, :], 0)
    drawn = weights.mean(-2) if group else keys.new_zeros(keys.shape[:-1], dtype=exact)
    scores = (drawn + epsilon) * values.to(exact).norm(dim=-1)
    scores = scores.masked_fill(unseen, 0)
    return Scored(scores, protected_ends(mask, kv_heads, sinks, 0))


def _logits(keys: Tensor, mean: Tensor, covariance: Tensor) -> Tensor:
    """Return z of every query head: a linear and a quadratic form of the keys of its group."""
    *batch, group, width, _ = covariance.shape
    tokens = keys.shape[-2]
    linear = mean / math.sqrt(width)
    quadratic = (covariance / (2 * width)).movedim(-3, -2).reshape(*batch, width, group * width)
    logits = keys.new_empty(*batch, group, tokens)
    for start in range(0, tokens, TOKENS):
        chunk = keys[..., start : start + TOKENS, :]
        turned = (chunk @ quadratic).unflatten(-1, (group, width))
        squares = (turned * chunk[..., None, :]).sum(-1).mT
        logits[..., start : start + TOKENS] = linear @ chunk.mT + squares
    return logits
