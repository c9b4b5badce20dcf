"""Plain ways to refine scores, to select entries, and to copy the kept ones."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import optimized as kv
from optimized.bench.straightforward.rows import (
    KV_HEADS,
    Inputs,
    both_ends,
    layer,
    quarter,
    row,
    scored,
)

SHAPE = "8 heads, {} tokens"
LAYER = "8 key heads of 128, {} tokens, "
SINKS, GAMMA = 4, 0.5


@row(scored(), SHAPE)
def hub_mask(scores: Tensor) -> Tensor:
    """Compare with the maximum of the window."""
    return scores == F.max_pool1d(scores, 5, 1, 2)


@row(scored(ratio=0.9, corrected=lambda scores: 0.5 * scores), SHAPE)
def gate(scores: Tensor, corrected: Tensor, ratio: float) -> Tensor:
    """Interpolate."""
    return torch.lerp(scores, corrected, ratio**2)


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


def marked(like: Tensor, places: Tensor) -> Tensor:
    """Return a mask that is true at places."""
    return torch.zeros_like(like, dtype=torch.bool).scatter_(-1, places, True)


def gathered(keys: Tensor, values: Tensor, places: Tensor) -> tuple[Tensor, ...]:
    """Copy as many entries of every head, in the order of the tokens."""
    places, heads = places.sort(-1).values, keys.shape[-3]
    rows = (places + torch.arange(heads)[:, None] * keys.shape[-2]).flatten()
    shape = (*places.shape, keys.shape[-1])
    kept = (x.flatten(0, -2).index_select(0, rows).view(shape) for x in (keys, values))
    return *kept, places


@row(scored(keep=quarter), SHAPE + ", a quarter kept")
def retain(scores: Tensor, keep: int) -> Tensor:
    """Mark the largest scores of each head."""
    return marked(scores, scores.topk(keep, sorted=False).indices)


@row(
    lambda n, dtype: layer(n, dtype) | dict(kept=kv.retain(**scored(keep=quarter)(n, dtype))),
    LAYER + "a quarter kept",
)
def evict(keys: Tensor, values: Tensor, kept: Tensor) -> tuple[Tensor, ...]:
    """Select the rows of the mask."""
    rows = kept.flatten().nonzero()[:, 0]
    shape = (*kept.shape[:-1], -1, keys.shape[-1])
    copies = (x.flatten(0, -2).index_select(0, rows).view(shape) for x in (keys, values))
    return *copies, (rows % kept.shape[-1]).view(shape[:-1])


def layer_scored(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return a layer with its scores, of which a quarter is kept, and both ends are protected."""
    given = scored(protected=both_ends)(tokens, dtype)
    return layer(tokens, dtype) | dict(scored=kv.Scored(**given), keep=tokens // 4)


@row(layer_scored, LAYER + "a quarter kept")
def compress(keys: Tensor, values: Tensor, scored: Any, keep: int) -> tuple[Tensor, ...]:
    """Take the largest scores of each head, and copy those entries."""
    scores = scored.scores.masked_fill(scored.protected, torch.inf)
    return gathered(keys, values, scores.topk(keep, sorted=False).indices)


def of_the_model(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return a layer and its scores, of which a quarter is kept in all heads together."""
    return layer_scored(tokens, dtype) | dict(keep=tokens // 4 * KV_HEADS)


@row(of_the_model, LAYER + "a quarter kept in all heads together")
def hubkv_select(keys: Tensor, values: Tensor, scored: Any, keep: int) -> Tensor:
    """Refine, and mark the largest scores of all heads."""
    ratio = 1 - keep / scored.scores.numel()
    refined = hubkv_refine(scored.scores.float(), ratio, scored.protected)
    refined = refined.masked_fill(scored.protected, torch.inf).flatten()
    return marked(refined, refined.topk(keep, sorted=False).indices).view_as(scored.scores)


@row(of_the_model, LAYER + "a quarter kept in all heads together", compared=lambda made: made[:3])
def hubkv_compress(keys: Tensor, values: Tensor, scored: Any, keep: int) -> tuple[Tensor, ...]:
    """Select, and copy the rows of the mask."""
    rows = hubkv_select(keys, values, scored, keep).flatten().nonzero()[:, 0]
    copies = (x.flatten(0, -2).index_select(0, rows) for x in (keys, values))
    return *copies, rows % keys.shape[-2]
