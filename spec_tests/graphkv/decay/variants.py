"""Other correct ways to apply signals along a graph."""

import numpy as np
import torch

from spec_tests.numpy_adapter import among_tensors
from spec_tests.variants.registry import register_variant


def at_last(loss, reached):
    """Return the loss of the last source that reaches each token, 0 where none does."""
    later = reached.flip(-2).cumsum(-2).flip(-2)
    return (loss * (reached & (later == 1))).sum(-2)


@register_variant("decay")
def by_one_factor(scores, weights, neighbours, rounds=1, strength=1.0, rule="product"):
    """Multiply the factors of all sources, and take the power of all rounds, in float64."""
    loss = strength * weights.double() * neighbours
    if rule == "product":
        factor = (1 - loss).prod(-2)
    else:
        factor = 1 - (loss.sum(-2) if rule == "sum" else at_last(loss, neighbours))
    return (scores * factor**rounds).to(scores.dtype)


@register_variant("decay", "values")
@among_tensors
def source_by_source(scores, weights, neighbours, rounds=1, strength=1.0, rule="product"):
    """The loops of Algorithm 2, in NumPy."""
    now = scores.copy()
    for _ in range(rounds):
        before = now.copy()
        for i in range(weights.shape[-2]):
            there, loss = neighbours[..., i, :], np.float32(strength) * weights[..., i, :]
            if rule == "product":
                now[there] = (now * (1 - loss))[there]
            elif rule == "sequential":
                now[there] = (before * (1 - loss))[there]
            else:
                now[there] = (now - before * loss)[there]
    return now


@register_variant("enhance")
def raised_at_once(scores, weights, neighbours, rounds=1, strength=1.0):
    """Take the power of the factor of all sources."""
    factor = torch.where(neighbours, 1 + strength * weights.double(), 1).prod(-2)
    return (scores * factor**rounds).to(scores.dtype)


@register_variant("enhance", "values")
def round_by_round(scores, weights, neighbours, rounds=1, strength=1.0):
    """Multiply by a product of gains in each round."""
    for _ in range(rounds):
        scores = scores * (1 + strength * weights * neighbours).prod(-2)
    return scores


@register_variant("banish")
def at_once(scores, neighbours, rounds=1):
    """Mark once: further rounds change nothing."""
    struck = neighbours.any(-2) if rounds else torch.zeros_like(scores, dtype=torch.bool)
    return torch.where(struck, -torch.inf, scores)


@register_variant("banish", "values")
@among_tensors
def by_numpy(scores, neighbours, rounds=1):
    """Write minus infinity where a source reaches, in NumPy."""
    out = scores.copy()
    if rounds:
        out[neighbours.any(-2)] = -np.inf
    return out
