"""The graph without loops over sources."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from reference.graphkv.graph import group_mean
from reference.precision import widen

ODD = -0x61C8864680B583EB  # 2^64 divided by the golden ratio, as int64
EDGES = 1 << 19
"""Edges, or entries of vectors, at a time, so that intermediate results fit into a CPU's cache."""


def edges(
    keys: Tensor,
    sources: Tensor,
    kind: str,
    queries: Tensor | None,
    values: Tensor | None,
    clamp: bool,
) -> Tensor:
    ends: dict[str, Any] = {"k": keys, "q": queries, "v": values}
    start, end = group_mean(ends[kind[0]], keys), group_mean(ends[kind[1]], keys)
    return cosine_edge_function(start, end, clamp)(sources)


def cosine_edge_function(start: Tensor, end: Tensor, clamp: bool) -> Callable[[Tensor], Tensor]:
    """Return a function from sources to their edges; batches give the same edges as one call."""
    end = widen(end)
    reach, first = torch.linalg.vector_norm(end, dim=-1), first_equal(end)

    def edges(sources: Tensor) -> Tensor:
        source = widen(start.take_along_dim(sources[..., None], -2))
        lengths = torch.linalg.vector_norm(source, dim=-1)[..., :, None] * reach[..., None, :]
        # divide the product once, not both vectors: exact where the lengths are exact
        inner = (source @ end.mT).div_(lengths).masked_fill_(lengths == 0, 0)
        # a matrix product rounds columns differently, so equal vectors take the edge of the first
        inner = inner.gather(-1, first[..., None, :].expand(inner.shape))
        return inner.clamp_(0 if clamp else -1, 1)

    return edges


def neighbours(
    weights: Tensor, sources: Tensor, count: int, protected: Tensor | None, spare_sources: bool
) -> Tensor:
    count = min(count, weights.shape[-1])
    if count == 0 or weights.numel() == 0:
        return torch.zeros_like(weights, dtype=torch.bool)
    barred = torch.zeros_like(weights[..., 0, :], dtype=torch.bool)
    if protected is not None:
        barred = protected
    if spare_sources:
        barred = barred.scatter(-1, sources, True)
    weights = weights.masked_fill(barred[..., None, :], -torch.inf)
    weights.scatter_(-1, sources[..., None], -torch.inf)
    best = weights.topk(count, -1).values
    last = best[..., -1:]
    # topk breaks ties arbitrarily: the lowest indices at the last value fill the remaining places
    room = count - (best > last).sum(-1, keepdim=True)
    tied = weights == last.masked_fill(last == -torch.inf, torch.inf)  # nothing that is barred
    return (weights > last) | tied & (tied.cumsum(-1, dtype=torch.int32) <= room)


def first_equal(vectors: Tensor) -> Tensor:
    """Return, for each token, the first token with an equal vector, possibly itself.

    Tokens are grouped by a hash of their bits and compared with the first of their group. So a
    hash collision can hide an equal vector, but never make unequal ones equal.
    """
    tokens = vectors.shape[-2]
    order = torch.arange(tokens, device=vectors.device)
    if not vectors.numel():
        return order.expand(vectors.shape[:-1])
    each = max(1, EDGES // (vectors.numel() // tokens))
    parts = vectors.split(each, -2)
    ranked, order = torch.cat([_hash(part) for part in parts], -1).sort(dim=-1, stable=True)
    opens = torch.ones_like(ranked, dtype=torch.bool)
    opens[..., 1:] = ranked[..., 1:] != ranked[..., :-1]
    start = torch.arange(tokens, device=vectors.device).where(opens, 0).cummax(-1).values
    first = torch.empty_like(order).scatter_(-1, order, order.gather(-1, start))
    both = zip(parts, first[..., None].expand(vectors.shape).split(each, -2), strict=True)
    same = [(part == vectors.gather(-2, other)).all(-1) for part, other in both]
    return torch.where(torch.cat(same, -1), first, torch.arange(tokens, device=vectors.device))


def _hash(vectors: Tensor) -> Tensor:
    """Return a hash of each vector: a sum over int64 words, exact in any order."""
    unsigned = vectors + 0.0  # -0 equals 0
    if vectors.dtype == torch.float32 and vectors.shape[-1] % 2:
        unsigned = torch.nn.functional.pad(unsigned, (0, 1))
    # flattened first, since an axis of length 1 may have any stride
    codes = unsigned.reshape(-1).view(torch.int64).view(*unsigned.shape[:-1], -1)
    place = torch.arange(1, codes.shape[-1] + 1, device=codes.device)
    return _mixed(codes * (_mixed(place * ODD) * ODD | 1)).sum(-1)


def _mixed(codes: Tensor) -> Tensor:
    return codes ^ (codes >> 29)
