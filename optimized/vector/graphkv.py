"""The graph and its signals, without loops over sources or rounds."""

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from optimized.vector._exponent import product, raised, times
from optimized.vector._twins import first_equal
from reference.graphkv.graph import neighbour_count, source_count
from reference.precision import widen

__all__ = [
    "banish",
    "decay",
    "edges",
    "enhance",
    "neighbour_count",
    "neighbours",
    "source_count",
    "source_tokens",
]


def source_tokens(
    scores: Float[Tensor, "*heads tokens"],
    count: int,
    protected: Bool[Tensor, "*heads tokens"] | None = None,
) -> Int64[Tensor, "*heads sources"]:
    return ranked(scores, count, protected)


def ranked(scores: Tensor, count: int, protected: Tensor | None) -> Tensor:
    if protected is not None:
        scores = scores.masked_fill(protected, -torch.inf)
    return scores.sort(dim=-1, descending=True, stable=True).indices[..., :count]


def edges(
    keys: Float[Tensor, "*heads tokens width"],
    sources: Int64[Tensor, "*heads sources"],
    kind: str = "kk",
    queries: Float[Tensor, "*query_heads tokens width"] | None = None,
    values: Float[Tensor, "*heads tokens width"] | None = None,
    clamp: bool = False,
) -> Float[Tensor, "*heads sources tokens"]:
    ends = {"k": keys, "q": queries, "v": values}
    start, end = grouped(ends[kind[0]], keys.shape), grouped(ends[kind[1]], keys.shape)
    return cosine(start, end, sources, clamp)


def grouped(vectors: Tensor | None, shape: torch.Size) -> Tensor:
    assert vectors is not None
    if vectors.shape == shape:
        return widen(vectors)
    return widen(vectors).unflatten(-3, (shape[-3], -1)).mean(-3)


def cosine(start: Tensor, end: Tensor, sources: Tensor, clamp: bool) -> Tensor:
    source = _balanced(start.take_along_dim(sources[..., None], -2))
    end = _balanced(end)
    lengths = torch.linalg.vector_norm(source, dim=-1)[..., :, None]
    lengths = lengths * torch.linalg.vector_norm(end, dim=-1)[..., None, :]
    # quotient of the product, never a product of quotients: exact where the lengths are
    inner = (source @ end.mT).div_(lengths).masked_fill_(lengths == 0, 0)
    # a matrix product rounds by the column's place: equal vectors take the edge of the first
    inner = inner.take_along_dim(first_equal(end)[..., None, :], -1)
    return inner.clamp_(0 if clamp else -1, 1)


def _balanced(vectors: Tensor) -> Tensor:
    """Divide each vector by a power of two, exactly, so that no square leaves the range."""
    if not vectors.shape[-1]:
        return vectors
    largest = vectors.abs().amax(-1, keepdim=True)
    power = largest / (2 * largest.frexp().mantissa)
    return vectors / power.masked_fill_(largest == 0, 1)


def neighbours(
    weights: Float[Tensor, "*heads sources tokens"],
    sources: Int64[Tensor, "*heads sources"],
    count: int,
    protected: Bool[Tensor, "*heads tokens"] | None = None,
    spare_sources: bool = False,
) -> Bool[Tensor, "*heads sources tokens"]:
    return strongest(weights, sources, count, protected, spare_sources)


def strongest(
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
    weights = weights.scatter(-1, sources[..., None], -torch.inf)
    last = weights.topk(count, -1).values[..., -1:]
    above, tied = weights > last, weights == last
    # topk breaks ties as it likes: of those at the last value, the lowest indices fill what is left
    room = count - above.sum(-1, keepdim=True)
    return (above | tied & (tied.cumsum(-1) <= room)) & (weights > -torch.inf)


def decay(
    scores: Float[Tensor, "*heads tokens"],
    weights: Float[Tensor, "*heads sources tokens"],
    neighbours: Bool[Tensor, "*heads sources tokens"],
    rounds: int = 1,
    strength: float = 1.0,
    rule: str = "product",
) -> Float[Tensor, "*heads tokens"]:
    if rule == "product":
        return _scaled(scores, (-strength * widen(weights)).add_(1), neighbours, rounds)
    if rule == "sum":
        lost = (strength * widen(weights)).masked_fill_(~neighbours, 0)
        factor = 1 - lost.sum(-2, dtype=torch.float64)
    else:
        factor = 1 - strength * widen(_of_the_last_source(weights, neighbours))
    return times(scores, *raised(*factor.double().frexp(), rounds))


def _of_the_last_source(weights: Tensor, neighbours: Tensor) -> Tensor:
    if not weights.numel():
        return weights.new_zeros(neighbours.any(-2).shape)
    count = torch.arange(1, neighbours.shape[-2] + 1, dtype=torch.int32, device=weights.device)
    last = (neighbours * count[:, None]).amax(-2, keepdim=True)
    edge = weights.take_along_dim((last.long() - 1).clamp_(min=0), -2)
    return torch.where(last > 0, edge, 0).squeeze(-2)


def _scaled(scores: Tensor, factors: Tensor, neighbours: Tensor, rounds: int) -> Tensor:
    return times(scores, *raised(*product(factors.masked_fill_(~neighbours, 1)), rounds))


def enhance(
    scores: Float[Tensor, "*heads tokens"],
    weights: Float[Tensor, "*heads sources tokens"],
    neighbours: Bool[Tensor, "*heads sources tokens"],
    rounds: int = 1,
    strength: float = 1.0,
) -> Float[Tensor, "*heads tokens"]:
    return _scaled(scores, (strength * widen(weights)).add_(1), neighbours, rounds)


def banish(
    scores: Float[Tensor, "*heads tokens"],
    neighbours: Bool[Tensor, "*heads sources tokens"],
    rounds: int = 1,
) -> Float[Tensor, "*heads tokens"]:
    return scores.masked_fill(neighbours.any(-2) & (rounds > 0), -torch.inf)
