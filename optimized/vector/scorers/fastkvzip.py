"""FastKVzip's gate, all heads at once."""

import math

import torch
from torch import Tensor

from optimized.vector.scorers._padding import protected_ends
from reference import GateWeights, Scored
from reference.precision import widest
from reference.scorers._padding import valid_or_all
from reference.scorers.fastkvzip import rms_norm


def fastkvzip(
    hidden: Tensor,
    weights: GateWeights,
    sinks: int,
    recent: int | None,
    epsilon: float,
    valid: Tensor | None,
) -> Scored:
    mask = valid_or_all(valid, hidden[..., None, :, :])
    kv_heads, group, dim = weights.query.shape[:3]
    exact = widest(hidden, *weights)
    # every projection in one product: the queries of each head, then its key
    matrices = torch.cat([weights.query, weights.key[:, None]], 1).to(exact)
    projected = hidden.to(exact) @ matrices.reshape(-1, hidden.shape[-1]).mT
    projected = projected.unflatten(-1, (kv_heads, group + 1, dim)).movedim(-4, -2)
    query = projected[..., :group, :, :] + weights.query_bias.to(exact)[:, :, None, :]
    query = rms_norm(query, weights.query_scale.to(exact), epsilon) / math.sqrt(dim)
    key = rms_norm(projected[..., group:, :, :], weights.key_scale.to(exact), epsilon)
    logits = (query * key).sum(-1) + weights.bias.to(exact)[..., None]
    rivals = query @ weights.learned.to(exact)[:, None].mT
    scores = (logits - rivals.logsumexp(-1)).sigmoid().mean(-2)
    scores = scores.masked_fill(~mask[..., None, :], 0)
    return Scored(scores, protected_ends(mask, kv_heads, sinks, recent))
