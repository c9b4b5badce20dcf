"""HubKV on one page: scores in, the kept entries out. Equation numbers are the paper's."""

from fractions import Fraction

import numpy as np
import torch
from torch import Tensor


def widen(x: Tensor) -> Tensor:
    """Return numbers in float32 at least, in which statistics and mixtures are computed."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def hub_mask(scores: Tensor, radius: int = 2, protected: Tensor | None = None) -> Tensor:
    """Mark each token that holds the maximum of its window, the first of equals (Eq. 6)."""
    if protected is not None:
        scores = scores.masked_fill(protected, -torch.inf)
    hubs = torch.zeros_like(scores, dtype=torch.bool)
    for i in range(scores.shape[-1]):
        start = max(0, i - radius)
        window = scores[..., start : i + radius + 1]
        hubs[..., i] = window.argmax(-1) == i - start
    return hubs if protected is None else hubs & ~protected


def discount(scores: Tensor, hubs: Tensor, gamma: float = 0.5) -> Tensor:
    """Multiply the score of every token that is not a hub by gamma (Eq. 7)."""
    return torch.where(hubs, scores, gamma * scores)


def smd(
    scores: Tensor, radius: int = 2, gamma: float = 0.5, protected: Tensor | None = None
) -> Tensor:
    """Find the hubs and discount the rest; protected tokens keep their score."""
    discounted = discount(scores, hub_mask(scores, radius, protected), gamma)
    return discounted if protected is None else torch.where(protected, scores, discounted)


def selectivity(scores: Tensor, protected: Tensor | None = None, epsilon: float = 1e-6) -> Tensor:
    """Return the coefficient of variation of each head's content tokens (Eq. 8)."""
    variation = widen(scores).new_zeros(scores.shape[:-1])
    for head in np.ndindex(scores.shape[:-1]):
        content = widen(scores[head] if protected is None else scores[head][~protected[head]])
        if content.any():  # no scores, or only zeros, do not vary
            deviation = (content - content.min()).std(correction=0)  # exactly 0 of equal scores
            variation[head] = deviation / (content.mean() + epsilon)
    return variation


def head_weights(
    selectivity: Tensor, tau: float = 0.5, minimum: float = 0.8, maximum: float = 1.2
) -> Tensor:
    """Weigh each head by its selectivity over the layer's mean, within bounds (Eq. 9)."""
    c = widen(selectivity)
    average = c.mean(-1, keepdim=True)
    share = torch.where(average > 0, c / average, 1)
    return share.pow(tau).clamp(minimum, maximum)


def calibrate(scores: Tensor, weights: Tensor) -> Tensor:
    """Multiply every score of a head by the head's weight (Eq. 9)."""
    return (widen(weights)[..., None] * widen(scores)).to(scores.dtype)


def gate(scores: Tensor, corrected: Tensor, ratio: float, power: float = 2.0) -> Tensor:
    """Mix raw and corrected scores by the power of the removed share (Eq. 10)."""
    strength = ratio**power
    return ((1 - strength) * widen(scores) + strength * widen(corrected)).to(scores.dtype)


def protected_mask(tokens: int, sinks: int = 4, recent: int | None = None) -> Tensor:
    """Mark the first tokens, and the latest: 2 % of all unless given (Eq. 11)."""
    recent = tokens // 50 if recent is None else recent
    position = torch.arange(tokens)
    return (position < sinks) | (position >= tokens - recent)


def hubkv_refine(
    scores: Tensor, ratio: float, protected: Tensor | None = None, radius: int = 2,
    gamma: float = 0.5, tau: float = 0.5, minimum: float = 0.8, maximum: float = 1.2,
    power: float = 2.0, epsilon: float = 1e-6,
) -> Tensor:  # fmt: skip
    """Discount, calibrate and gate the content tokens; a protected token reads 1 (Eq. 11-13)."""
    raw = widen(scores)
    raw = raw if protected is None else raw.masked_fill(protected, 0)
    weights = head_weights(selectivity(raw, protected, epsilon), tau, minimum, maximum)
    corrected = calibrate(smd(raw, radius, gamma, protected), weights)
    refined = gate(raw, corrected, ratio, power)
    return (refined if protected is None else refined.masked_fill(protected, 1)).to(scores.dtype)


def kept_count(pool: int, ratio: float) -> int:
    """Return the entries kept of a pool when a share is removed: exact, rounded down."""
    return int((1 - Fraction(str(ratio))) * pool)


def retain(
    scores: Tensor, protected: Tensor | None = None, *,
    keep: int | Tensor | None = None, ratio: float | None = None, scope: str = "head",
) -> Tensor:  # fmt: skip
    """Keep the budget of each pool: protected entries, then the best, the first of equals."""
    shield = torch.zeros_like(scores, dtype=torch.bool) if protected is None else protected
    if scope == "model":  # layers stand first, and compete with each other
        scores, shield = scores.movedim(0, -3), shield.movedim(0, -3)
    axes = {"head": 1, "layer": 2, "model": 3}[scope]
    pools, first = scores.flatten(-axes), shield.flatten(-axes)
    best = pools.argsort(dim=-1, descending=True, stable=True)
    order = best.gather(-1, (~first).gather(-1, best).byte().argsort(dim=-1, stable=True))
    rank = order.argsort(-1)
    budget = keep if ratio is None else kept_count(pools.shape[-1], ratio)
    kept = (rank < torch.as_tensor(budget)[..., None]).reshape(scores.shape)
    return kept.movedim(-3, 0) if scope == "model" else kept
