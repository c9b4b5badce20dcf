"""FastKVzip's gate, all heads at once."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from optimized.vector._rows import protected
from reference import GateWeights, Scored, errors
from reference.precision import widen
from reference.scorers import errors as refuse
from reference.scorers import scoring_errors


def fastkvzip(
    hidden: Float[Tensor, "*batch tokens hidden"],
    weights: GateWeights,
    sinks: int = 4,
    recent: int | None = None,
    epsilon: float = 1e-6,
    valid: Bool[Tensor, "*batch tokens"] | None = None,
) -> Scored:
    errors.floating("hidden", hidden, 2)
    errors.finite("hidden", hidden)
    scoring_errors.kind("weights", weights, GateWeights)
    scoring_errors.gate_weights("weights", weights, hidden.shape[-1])
    errors.whole("sinks", sinks)
    if recent is not None:
        errors.whole("recent", recent)
    errors.positive_finite("epsilon", epsilon)
    batch, tokens = hidden.shape[:-2], hidden.shape[-2]
    mask = torch.ones_like(hidden[..., 0], dtype=torch.bool) if valid is None else valid
    refuse.padding(mask, (*batch, tokens))
    kv_heads, group, dim = weights.query.shape[:3]
    exact = _widest(hidden, weights)
    # every projection in one product: the queries of each head, then its key
    matrices = torch.cat([weights.query, weights.key[:, None]], 1).to(exact)
    projected = hidden.to(exact) @ matrices.reshape(-1, hidden.shape[-1]).mT
    projected = projected.reshape(*batch, tokens, kv_heads, group + 1, dim).movedim(-4, -2)
    query = projected[..., :group, :, :] + weights.query_bias.to(exact)[:, :, None, :]
    query = _rms_norm(query, weights.query_scale.to(exact), epsilon) / math.sqrt(dim)
    key = _rms_norm(projected[..., group:, :, :], weights.key_scale.to(exact), epsilon)
    logits = (query * key).sum(-1) + weights.bias.to(exact)[..., None]
    rivals = query @ weights.learned.to(exact)[:, None].mT
    scores = (logits - rivals.logsumexp(-1)).sigmoid().mean(-2)
    scores = scores.masked_fill(~mask[..., None, :], 0)
    errors.in_range("hidden", scores)
    return Scored(scores, protected(mask, kv_heads, sinks, recent))


def _widest(hidden: Tensor, weights: GateWeights) -> torch.dtype:
    """Return float64 where any argument has it, else float32."""
    exact = widen(hidden).dtype
    for tensor in (
        weights.query,
        weights.query_bias,
        weights.query_scale,
        weights.key,
        weights.key_scale,
        weights.learned,
        weights.bias,
    ):
        exact = torch.promote_types(exact, tensor.dtype)
    return exact


def _rms_norm(y: Tensor, scale: Tensor, epsilon: float) -> Tensor:
    """Divide by the root of the mean square."""
    return scale * y * (y.square().mean(-1, keepdim=True) + epsilon).rsqrt()
