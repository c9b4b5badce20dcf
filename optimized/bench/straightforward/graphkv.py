"""Plain ways to GraphKV's functions."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import optimized as kv
from optimized.bench.straightforward.rows import (
    Inputs,
    importance,
    keys_alone,
    layer,
    normal,
    row,
    scored,
)

KEEP, SOURCES, COUNT = 512, 153, 16
"""A budget, 30 % of it, and the neighbours of each source."""


def nodes(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return the concatenated keys of a layer, and the sources."""
    keys = normal(1, tokens, 1024).to(dtype)
    return dict(keys=keys, sources=importance(3, tokens).topk(min(SOURCES, tokens)).indices)


@row(nodes, "one graph of keys of 1024, {} tokens, 153 sources")
def edges(keys: Tensor, sources: Tensor) -> Tensor:
    """Normalise, and multiply the sources by all."""
    unit = F.normalize(keys.float(), dim=-1)
    return unit[sources] @ unit.mT


@row(
    lambda n, dtype: scored(keep=KEEP, count=COUNT)(n, dtype) | keys_alone(n, dtype),
    "8 key heads of 128, {} tokens, 153 sources, 16 neighbours",
)
def graphkv_refine(scores: Tensor, keys: Tensor, keep: int, count: int) -> Tensor:
    """Multiply the mean score of each token by what its sources leave."""
    mean = scores[0].float().mean(0)
    sources = mean.topk(int(0.3 * keep)).indices
    weights = edges(keys[0].movedim(0, 1).flatten(1), sources)
    weights = weights.scatter_(-1, sources[:, None], -torch.inf)
    best = weights.topk(count, sorted=False)
    refined = mean.scatter_reduce(0, best.indices.flatten(), 1 - best.values.flatten(), "prod")
    return refined.to(scores.dtype).expand_as(scores)


def selecting(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return a layer, its scores and a budget."""
    scores = importance(3, 1, 8, tokens).to(dtype)
    both = kv.Scored(scores, torch.zeros_like(scores, dtype=torch.bool))
    rest = dict(scored=both, keep=KEEP, refinement=kv.GraphSettings(COUNT))
    return layer(tokens, dtype) | rest


@row(selecting, "8 key heads of 128, {} tokens, 512 kept")
def graphkv_compress(
    keys: Tensor, values: Tensor, scored: Any, keep: int, refinement: Any
) -> tuple[Tensor, ...]:
    """Refine, take the largest scores, which are those of every head, and copy the entries."""
    count = min(refinement.count, keys.shape[-2] // 1000)
    refined = graphkv_refine(scored.scores.float(), keys, keep, count)
    best = refined[0, 0].topk(keep, sorted=False).indices.sort().values
    kept = (x.index_select(-2, best) for x in (keys, values))
    return *kept, best.expand(1, 8, -1)
