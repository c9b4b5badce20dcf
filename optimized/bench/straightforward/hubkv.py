"""Plain ways to HubKV's functions."""

import torch
import torch.nn.functional as F
from torch import Tensor

import optimized as kv
from optimized.bench.straightforward.rows import (
    KV_HEADS,
    both_ends,
    importance,
    quarter,
    row,
    scored,
)

SHAPE = "8 heads, {} tokens"
SINKS, GAMMA = 4, 0.5


@row(scored(), SHAPE)
def hub_mask(scores: Tensor) -> Tensor:
    """Compare with the maximum of the window."""
    return scores == F.max_pool1d(scores, 5, 1, 2)


@row(scored(hubs=kv.hub_mask), SHAPE)
def discount(scores: Tensor, hubs: Tensor) -> Tensor:
    """Halve the others."""
    return torch.where(hubs, scores, GAMMA * scores)


@row(scored(), SHAPE)
def smd(scores: Tensor) -> Tensor:
    """Find the hubs and halve the others."""
    return torch.where(scores == F.max_pool1d(scores, 5, 1, 2), scores, GAMMA * scores)


@row(scored(), SHAPE)
def nms(scores: Tensor) -> Tensor:
    """Find the hubs and suppress the others."""
    return torch.where(scores == F.max_pool1d(scores, 7, 1, 3), scores, 0.3 * scores)


@row(scored(), SHAPE)
def selectivity(scores: Tensor) -> Tensor:
    """Divide the standard deviation by the mean."""
    variance, mean = torch.var_mean(scores.float(), -1, correction=0)
    return variance.sqrt() / (mean + 1e-6)


@row(
    lambda tokens, dtype: dict(selectivity=importance(0, tokens // 8, 8).to(dtype)),
    "{}/8 layers of 8 heads",
)
def head_weights(selectivity: Tensor) -> Tensor:
    """Take the root of the share of the mean, within bounds."""
    wide = selectivity.float()
    return (wide / wide.mean(-1, keepdim=True)).sqrt().clamp(0.8, 1.2)


@row(scored(weights=lambda scores: importance(1, 1, KV_HEADS).to(scores.dtype)), SHAPE)
def calibrate(scores: Tensor, weights: Tensor) -> Tensor:
    """Multiply."""
    return scores * weights[..., None]


@row(scored(ratio=0.9, corrected=lambda scores: 0.5 * scores), SHAPE)
def gate(scores: Tensor, corrected: Tensor, ratio: float) -> Tensor:
    """Interpolate."""
    return torch.lerp(scores, corrected, ratio**2)


@row(lambda tokens, _: dict(tokens=tokens), "{} tokens")
def protected_mask(tokens: int) -> Tensor:
    """Mark both ends."""
    mask = torch.zeros(tokens, dtype=torch.bool)
    mask[:SINKS] = mask[tokens - tokens // 50 :] = True
    return mask


def corrected_content(content: Tensor) -> Tensor:
    """Discount all but the hubs, and weigh the heads."""
    variance, mean = torch.var_mean(content, -1, correction=0, keepdim=True)
    spread = variance.sqrt() / (mean + 1e-6)
    weights = (spread / spread.mean(-2, keepdim=True)).sqrt().clamp(0.8, 1.2)
    hubs = content == F.max_pool1d(content.flatten(0, -2), 5, 1, 2).view_as(content)
    return weights * torch.where(hubs, content, GAMMA * content)


@row(scored(ratio=0.95, protected=both_ends), SHAPE)
def hubkv_refine(scores: Tensor, ratio: float, protected: Tensor) -> Tensor:
    """Cut off the protected ends, and mix the scores between them with the corrected ones."""
    del protected  # a user knows which tokens these are
    inside = slice(SINKS, scores.shape[-1] - scores.shape[-1] // 50)
    content = scores[..., inside].float()
    refined = torch.ones_like(scores)
    refined[..., inside] = torch.lerp(content, corrected_content(content), ratio**2)
    return refined


@row(scored(), SHAPE)
def ungated_refine(scores: Tensor) -> Tensor:
    """Correct all scores."""
    return corrected_content(scores.float()).to(scores.dtype)


@row(scored(), SHAPE)
def shift_scores(scores: Tensor) -> Tensor:
    """Subtract the least."""
    return scores - scores.amin(-1, keepdim=True)


@row(scored(keep=quarter, rule="waterfill"), SHAPE + ", waterfill")
def head_budgets(scores: Tensor, keep: int, rule: str) -> Tensor:
    """Count the places of the largest shares of all heads."""
    del rule
    shares = scores.double() / scores.double().sum(-1, keepdim=True)
    best = shares.flatten().topk(keep * KV_HEADS, sorted=False).indices
    return torch.bincount(best // scores.shape[-1], minlength=KV_HEADS)[None]
