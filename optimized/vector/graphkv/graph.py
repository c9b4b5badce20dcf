"""The graph without loops over sources."""

from typing import Any

import torch
from torch import Tensor

from optimized.vector.graphkv.equal_vectors import first_equal
from reference.graphkv.graph import (
    balanced,
    group_mean,
    neighbour_count,
    source_count,
    source_tokens,
)

__all__ = ["edges", "neighbour_count", "neighbours", "source_count", "source_tokens"]


def edges(
    keys: Tensor,
    sources: Tensor,
    kind: str = "kk",
    queries: Tensor | None = None,
    values: Tensor | None = None,
    clamp: bool = False,
) -> Tensor:
    ends: dict[str, Any] = {"k": keys, "q": queries, "v": values}
    start, end = group_mean(ends[kind[0]], keys), group_mean(ends[kind[1]], keys)
    return cosine(start, end, sources, clamp)


def cosine(start: Tensor, end: Tensor, sources: Tensor, clamp: bool) -> Tensor:
    source = balanced(start.take_along_dim(sources[..., None], -2))
    end = balanced(end)
    lengths = torch.linalg.vector_norm(source, dim=-1)[..., :, None]
    lengths = lengths * torch.linalg.vector_norm(end, dim=-1)[..., None, :]
    # quotient of the product, never a product of quotients: exact where the lengths are
    inner = (source @ end.mT).div_(lengths).masked_fill_(lengths == 0, 0)
    # a matrix product rounds by the column's place: equal vectors take the edge of the first
    inner = inner.take_along_dim(first_equal(end)[..., None, :], -1)
    return inner.clamp_(0 if clamp else -1, 1)


def neighbours(
    weights: Tensor,
    sources: Tensor,
    count: int,
    protected: Tensor | None = None,
    spare_sources: bool = False,
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
    weights = weights.scatter(-1, sources[..., None], -torch.inf)
    last = weights.topk(count, -1).values[..., -1:]
    above, tied = weights > last, weights == last
    # topk breaks ties as it likes: of those at the last value, the lowest indices fill what is left
    room = count - above.sum(-1, keepdim=True)
    return (above | tied & (tied.cumsum(-1) <= room)) & (weights > -torch.inf)
