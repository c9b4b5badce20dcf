"""Plain ways to the scorers."""

import math
from operator import itemgetter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import optimized as kv
from optimized.bench.straightforward.attention import SHAPE, WINDOW, attention_weights
from optimized.bench.straightforward.rows import (
    KV_HEADS,
    QUERY_HEADS,
    WIDTH,
    Inputs,
    keys_alone,
    last_queries,
    layer,
    normal,
    row,
)

SINKS, KERNEL = 4, 5
LAYER = "8 key heads of 128, {} tokens"


def of_groups(weights: Tensor) -> Tensor:
    """Put the query heads of each key head on an axis of their own."""
    return weights.unflatten(1, (KV_HEADS, -1))


@row(last_queries(WINDOW), SHAPE + "32 queries", compared=itemgetter(0))
def snapkv(queries: Tensor, keys: Tensor) -> Tensor:
    """Sum over the window, pool, and average the group."""
    observed = attention_weights(queries, keys)[..., :-WINDOW].sum(-2)
    pooled = F.avg_pool1d(observed, KERNEL, 1, KERNEL // 2)
    return F.pad(of_groups(pooled).mean(2), (0, WINDOW))


@row(last_queries(WINDOW), SHAPE + "32 queries", compared=itemgetter(0))
def cake(queries: Tensor, keys: Tensor) -> Tensor:
    """Take mean and variance over the window, pool, and average the group."""
    variance, mean = torch.var_mean(attention_weights(queries, keys)[..., :-WINDOW], -2)
    pooled = F.avg_pool1d(mean + 200 * variance, KERNEL, 1, KERNEL // 2)
    return F.pad(of_groups(pooled).mean(2), (0, WINDOW))


@row(last_queries(WINDOW), SHAPE + "32 queries")
def cake_preference(queries: Tensor, keys: Tensor) -> Tensor:
    """Multiply the entropy of the weights by their variance over the window."""
    seen = attention_weights(queries, keys)[..., :-WINDOW]
    entropy = -(seen * (seen + 1e-10).log()).sum((-3, -2, -1))
    return entropy * seen.var(-2).sum((-2, -1))


def moments(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return statistics of queries, a rotation and a layer."""
    statistics = kv.query_statistics(normal(0, 1, QUERY_HEADS, 512, WIDTH).to(dtype))
    rotation = kv.mean_rotation(10000 ** -(torch.arange(64) / 64), tokens)
    return layer(tokens, dtype) | dict(statistics=statistics, rotation=rotation)


@row(moments, "32 query heads, " + LAYER, compared=itemgetter(0))
def expected_attention(statistics: Any, keys: Tensor, values: Tensor, rotation: Tensor) -> Tensor:
    """Turn the moments, and take the logarithm of the expected weight of every key."""
    mean = of_groups(statistics.mean @ rotation.mT)[..., None]
    covariance = of_groups(rotation @ statistics.covariance @ rotation.mT)
    content = keys[:, :, None, SINKS:].float()
    logits = (content @ mean)[..., 0] / math.sqrt(WIDTH)
    logits += ((content @ covariance) * content).sum(-1) / (2 * WIDTH)
    scores = F.pad(logits.softmax(-1).mean(2), (SINKS, 0))
    return scores * values.float().norm(dim=-1)


CHUNK, REPEAT = 1024, 128


def repetition(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return a layer, and the queries and keys that repeat its first chunk."""
    queries = normal(0, 1, QUERY_HEADS, REPEAT, WIDTH).to(dtype)
    repeat_keys = normal(2, 1, KV_HEADS, REPEAT, WIDTH).to(dtype)
    given = dict(queries=queries, repeat_keys=repeat_keys, index=0, chunk=CHUNK)
    return given | keys_alone(tokens, dtype)


@row(repetition, SHAPE + "a chunk of 1024, 128 queries")
def kvzip_chunk(
    queries: Tensor, keys: Tensor, repeat_keys: Tensor, index: int, chunk: int
) -> Tensor:
    """Attend to sinks, chunk and repetition, and keep each token's largest weight."""
    start = SINKS + index * chunk
    part = keys[:, :, start : start + chunk]
    seen = torch.cat([keys[:, :, :SINKS], part, repeat_keys], 2)
    weights = attention_weights(queries, seen)[..., SINKS : SINKS + part.shape[2]]
    scores = weights.new_zeros(keys.shape[:-1])
    scores[..., start : start + chunk] = of_groups(weights).amax((2, 3))
    return scores


def gate(kv_heads: int) -> kv.GateWeights:
    """Return random weights of a FastKVzip gate with 4 queries per key head."""
    group, dim, hidden = 4, 16, 1024
    return kv.GateWeights(
        normal(0, kv_heads, group, dim, hidden) / 32,
        normal(1, kv_heads, group, dim),
        torch.ones(dim),
        normal(2, kv_heads, dim, hidden) / 32,
        torch.ones(dim),
        normal(3, kv_heads, 16, dim),
        normal(4, kv_heads, group),
    )


def states(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return hidden states and the weights of a gate."""
    hidden = normal(5, 1, tokens, 1024).to(dtype)
    return dict(hidden=hidden, weights=gate(KV_HEADS))


@row(states, "hidden states of 1024, {} tokens, 8 key heads", compared=itemgetter(0))
def fastkvzip(hidden: Tensor, weights: kv.GateWeights) -> Tensor:
    """Project, normalise, and compare each key's logit with those of the learned keys."""
    dim = weights.query.shape[2]
    key = F.linear(hidden.float(), weights.key.flatten(0, 1)).unflatten(-1, (KV_HEADS, 1, dim))
    query = F.linear(hidden.float(), weights.query.flatten(0, 2), weights.query_bias.flatten())
    query = F.rms_norm(query.unflatten(-1, (KV_HEADS, -1, dim)), [dim], weights.query_scale, 1e-6)
    key = F.rms_norm(key, [dim], weights.key_scale, 1e-6)
    logits = (key * query).sum(-1) / math.sqrt(dim) + weights.bias
    rivals = (query @ weights.learned.mT / math.sqrt(dim)).logsumexp(-1)
    return (logits - rivals).sigmoid().mean(-1).mT


@row(keys_alone, LAYER, compared=itemgetter(0))
def knorm(keys: Tensor) -> Tensor:
    """Negate the norm."""
    return -keys.norm(dim=-1, dtype=torch.float32)


@row(last_queries(256), SHAPE + "256 queries")
def h2o_mass(queries: Tensor, keys: Tensor) -> Tensor:
    """Sum the weights over the queries and the group."""
    return of_groups(attention_weights(queries, keys)).sum((2, 3))
