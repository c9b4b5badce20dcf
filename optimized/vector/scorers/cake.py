"""CAKE's scores and preferences, all heads at once."""

import torch
import torch.nn.functional as F
from torch import Tensor

from optimized._doubles import doubles_on_cpu
from optimized.vector.attention import attention_weights, later, masked_weights
from optimized.vector.scorers._padding import protected_ends
from reference import Scored
from reference.contract import checks
from reference.precision import widest
from reference.scorers._padding import valid_or_all


def cake(
    queries: Tensor, keys: Tensor, window: int, gamma: float, kernel: int, valid: Tensor | None
) -> Scored:
    *batch, kv_heads, tokens, _ = keys.shape
    mask = valid_or_all(valid, keys)
    exact = widest(queries, keys)
    scores = keys.new_zeros(keys.shape[:-1], dtype=exact)
    old = tokens - window
    if old > 0:
        weights = _observed(queries, keys, window, valid)
        variance, mean = _variance(weights), weights.mean(-2)
        group = queries.shape[-3] // max(1, kv_heads)
        indicator = (mean + gamma * variance).reshape(*batch, kv_heads, group, old)
        if indicator.numel():
            flat = indicator.mean(-2).reshape(-1, 1, old)
            scores[..., :old] = F.avg_pool1d(flat, kernel, 1, kernel // 2).reshape(
                *batch, kv_heads, old
            )
        scores = scores.masked_fill(~mask[..., None, :], 0)
    checks.refuse_overflow("gamma", scores, gamma)
    return Scored(scores, protected_ends(mask, kv_heads, 0, window))


@doubles_on_cpu
def cake_preference(
    queries: Tensor, keys: Tensor, window: int, tau1: float, tau2: float, valid: Tensor | None
) -> Tensor:
    batch, tokens = keys.shape[:-3], keys.shape[-2]
    if tokens <= window:
        return keys.new_zeros(batch, dtype=torch.float32)
    observing = queries[..., -window:, :].double()
    weights = _observed(observing, keys.double(), window, valid)
    entropy = -(weights * (weights + 1e-10).log()).sum((-3, -2, -1)).clamp(max=0)
    change = _variance(weights).sum((-2, -1))
    preference = (entropy ** (1 / tau1) * change ** (1 / tau2)).float()
    checks.refuse_overflow("tau1", preference, tau1)
    return preference


def _variance(weights: Tensor) -> Tensor:
    """Return the unbiased variance over the queries."""
    deviations = weights - weights.mean(-2, keepdim=True)
    return deviations.square().sum(-2) / (weights.shape[-2] - 1)


def _observed(queries: Tensor, keys: Tensor, window: int, valid: Tensor | None) -> Tensor:
    """Return the weights of the last queries on the tokens before them, 0 on padding."""
    last, old = queries[..., -window:, :], keys.shape[-2] - window
    if valid is None:
        weights = attention_weights(last, keys, True, None, None)
    else:
        unseen = later(last, keys) | ~valid[..., None, None, :]
        weights = masked_weights(last, keys, unseen).masked_fill(unseen, 0)
    return weights[..., :old]
