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
from optimized.bench.straightforward.selection import marked

KEEP, SOURCES, COUNT = 512, 153, 16
"""A budget, 30 % of it, and the neighbours of each source."""
GRAPH = "one graph of keys of 1024, {} tokens, 153 sources"


def nodes(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return the concatenated keys of a layer, and the sources."""
    keys = normal(1, tokens, 1024).to(dtype)
    return dict(keys=keys, sources=importance(3, tokens).topk(min(SOURCES, tokens)).indices)


def graph(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return the edges of the sources, and the neighbours."""
    given = nodes(tokens, dtype)
    weights = kv.edges(**given)
    reached = kv.neighbours(weights, given["sources"], COUNT)
    return dict(scores=importance(3, tokens).to(dtype), weights=weights, neighbours=reached)


@row(scored(count=SOURCES), "8 heads, {} tokens, 153 sources")
def source_tokens(scores: Tensor, count: int) -> Tensor:
    """Take the largest."""
    return scores.topk(count).indices


@row(nodes, GRAPH)
def edges(keys: Tensor, sources: Tensor) -> Tensor:
    """Normalise, and multiply the sources by all."""
    unit = F.normalize(keys.float(), dim=-1)
    return unit[sources] @ unit.mT


def weighed(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return the edges of the sources, and how many neighbours each has."""
    given = nodes(tokens, dtype)
    return dict(weights=kv.edges(**given).to(dtype), sources=given["sources"], count=COUNT)


@row(weighed, GRAPH + ", 16 neighbours")
def neighbours(weights: Tensor, sources: Tensor, count: int) -> Tensor:
    """Leave out each source itself, and mark the strongest edges."""
    others = weights.scatter(-1, sources[:, None], -torch.inf)
    return marked(others, others.topk(count, sorted=False).indices)


@row(graph, GRAPH + ", 16 neighbours")
def decay(scores: Tensor, weights: Tensor, neighbours: Tensor) -> Tensor:
    """Multiply by what each source leaves."""
    return (scores * (1 - weights * neighbours).prod(-2)).to(scores.dtype)


@row(graph, GRAPH + ", 16 neighbours")
def enhance(scores: Tensor, weights: Tensor, neighbours: Tensor) -> Tensor:
    """Multiply by what each source adds."""
    return (scores * (1 + weights * neighbours).prod(-2)).to(scores.dtype)


def without_weights(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return scores and neighbours."""
    given = graph(tokens, dtype)
    return dict(scores=given["scores"], neighbours=given["neighbours"])


@row(without_weights, GRAPH + ", 16 neighbours")
def banish(scores: Tensor, neighbours: Tensor) -> Tensor:
    """Fill where any source reaches."""
    return scores.masked_fill(neighbours.any(-2), -torch.inf)


@row(lambda tokens, dtype: dict(vectors=keys_alone(tokens, dtype)["keys"]), "8 heads, {} tokens")
def concatenate_heads(vectors: Tensor) -> Tensor:
    """Move the heads beside the channels."""
    return vectors.movedim(-3, -2).flatten(-2)


@row(
    lambda n, dtype: scored(keep=KEEP, count=COUNT)(n, dtype) | keys_alone(n, dtype),
    "8 key heads of 128, {} tokens, 153 sources, 16 neighbours",
)
def graphkv_refine(scores: Tensor, keys: Tensor, keep: int, count: int) -> Tensor:
    """Multiply the mean score of each token by what its sources leave."""
    unit = F.normalize(keys[0].movedim(0, 1).flatten(1).float(), dim=-1)
    mean = scores[0].float().mean(0)
    sources = mean.topk(int(0.3 * keep)).indices
    weights = (unit[sources] @ unit.mT).scatter_(-1, sources[:, None], -torch.inf)
    best = weights.topk(count, sorted=False)
    refined = mean.scatter_reduce(0, best.indices.flatten(), 1 - best.values.flatten(), "prod")
    return refined.to(scores.dtype).expand_as(scores)


def selecting(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return a layer, its scores and a budget."""
    scores = importance(3, 1, 8, tokens).to(dtype)
    both = kv.Scored(scores, torch.zeros_like(scores, dtype=torch.bool))
    rest = dict(scored=both, keep=KEEP, refinement=kv.GraphSettings(COUNT))
    return layer(tokens, dtype) | rest


SELECTING = "8 key heads of 128, {} tokens, 512 kept"


@row(selecting, SELECTING)
def graphkv_select(keys: Tensor, values: Tensor, scored: Any, keep: int, refinement: Any) -> Tensor:
    """Refine, and mark the largest scores of each head."""
    count = min(refinement.count, keys.shape[-2] // 1000)
    refined = graphkv_refine(scored.scores.float(), keys, keep, count)
    return marked(refined, refined.topk(keep, sorted=False).indices)


@row(selecting, SELECTING)
def graphkv_compress(
    keys: Tensor, values: Tensor, scored: Any, keep: int, refinement: Any
) -> tuple[Tensor, ...]:
    """Refine, take the largest scores, which are those of every head, and copy the entries."""
    count = min(refinement.count, keys.shape[-2] // 1000)
    refined = graphkv_refine(scored.scores.float(), keys, keep, count)
    best = refined[0, 0].topk(keep, sorted=False).indices.sort().values
    kept = (x.index_select(-2, best) for x in (keys, values))
    return *kept, best.expand(1, 8, -1)
