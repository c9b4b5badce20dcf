"""The graph without loops over sources."""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from optimized.vector._by_numpy import array, on_cpu, places
from optimized.vector.retain import largest, ranked
from reference.contract.enforce import may_branch_on_values
from reference.graphkv.graph import group_mean
from reference.precision import widen

EDGES = 1 << 19
"""Edges, or entries of vectors, at a time, so that intermediate results fit into a CPU's cache."""
FEWEST = 32
"""Fewest sources of a batch, unless a graph has fewer: matrix products of few rows are slow."""


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
    edges_of = cosine_edge_function(start, end, clamp)
    batch = max(FEWEST, EDGES // max(1, end.shape[:-1].numel()))
    if sources.shape[-1] <= batch:
        return edges_of(sources)
    weights = widen(end).new_empty(*sources.shape, keys.shape[-2])
    for chosen, into in zip(sources.split(batch, -1), weights.split(batch, -2), strict=True):
        into.copy_(edges_of(chosen))
    return weights


def cosine_edge_function(start: Tensor, end: Tensor, clamp: bool) -> Callable[[Tensor], Tensor]:
    """Return a function from sources to their edges; batches give the same edges as one call."""
    end = widen(end)
    norm = torch.linalg.vector_norm(end, dim=-1)
    first, reach = first_equal(end, norm), endless_where_zero(norm)

    def edges(sources: Tensor) -> Tensor:
        source = widen(rows_at(start, sources))
        length = endless_where_zero(torch.linalg.vector_norm(source, dim=-1))
        # divide the product once, not both vectors: exact where the lengths are exact
        inner = (source @ end.mT).div_(length[..., :, None] * reach[..., None, :])
        if first is not None:
            # a matrix product rounds columns differently, so equal vectors take the edge of one
            inner = inner.gather(-1, first[..., None, :].expand(inner.shape))
        return inner.clamp_(0 if clamp else -1, 1)

    return edges


def rows_at(vectors: Tensor, tokens_read: Tensor) -> Tensor:
    """Return each graph's vectors at some tokens; whole rows are copied."""
    *graphs, tokens, width = vectors.shape
    first = tokens * torch.arange(prod(graphs), device=tokens_read.device).view(*graphs, 1)
    rows = vectors.reshape(prod(graphs) * tokens, width)
    return rows.index_select(0, (tokens_read + first).flatten()).view(*tokens_read.shape, width)


def endless_where_zero(lengths: Tensor) -> Tensor:
    """Return infinity for a length of 0, so that every edge of the vector is 0."""
    return lengths.masked_fill(lengths == 0, torch.inf)


def source_tokens(scores: Tensor, count: int, protected: Tensor | None) -> Tensor:
    if protected is not None:
        scores = scores.masked_fill(protected, -torch.inf)
    return ranked(scores, count)


def neighbours(
    weights: Tensor, sources: Tensor, count: int, protected: Tensor | None, spare_sources: bool
) -> Tensor:
    if not weights.numel():
        return torch.zeros_like(weights, dtype=torch.bool)
    barred = protected
    if spare_sources:
        none = torch.zeros_like(weights[..., 0, :], dtype=torch.bool)
        barred = (none if barred is None else barred).scatter(-1, sources, True)
    reached = torch.zeros_like(weights, dtype=torch.bool)
    batch = max(1, EDGES // weights[..., 0, :].numel())
    parts = weights.split(batch, -2), sources.split(batch, -1), reached.split(batch, -2)
    for edges_left, mine, into in zip(*parts, strict=True):
        found, columns = strongest(candidates(edges_left, mine, barred), count)
        into.scatter_(-1, columns, found > -torch.inf)
    return reached


def candidates(weights: Tensor, sources: Tensor, barred: Tensor | None) -> Tensor:
    """Return the edges with minus infinity at the source itself and where `barred`."""
    if barred is None:
        return weights.scatter(-1, sources[..., None], -torch.inf)
    # a sum is many times as fast as a mask that is filled
    bars = weights.new_zeros(barred.shape).masked_fill_(barred, -torch.inf)
    return (weights + bars[..., None, :]).scatter_(-1, sources[..., None], -torch.inf)


def strongest(weights: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest weights of each row, at most `count`, and their places in no order.

    Of equal weights the first are taken.
    """
    tokens = weights.shape[-1]
    count = min(count, tokens)
    if on_cpu(weights) and weights.numel() and 0 < count < tokens:
        first = (places(largest(weights, count)) % tokens).view(*weights.shape[:-1], count)
        return weights.gather(-1, first), first
    found, columns = weights.topk(min(count + 1, tokens), -1)
    if 0 < count < tokens:
        last = found[..., count - 1 : count]
        tied = (last == found[..., count:]) & (last > -torch.inf)
        if not may_branch_on_values(tied) or bool(tied.any()):
            # topk breaks ties arbitrarily: the first at the last weight fill the remaining places
            room = count - (found[..., :count] > last).sum(-1, keepdim=True)
            equal = weights == last.masked_fill(last == -torch.inf, torch.inf)
            taken = (weights > last) | equal & (equal.cumsum(-1, dtype=torch.int32) <= room)
            found, columns = weights.masked_fill(~taken, -torch.inf).topk(count, -1)
    return found[..., :count], columns[..., :count]


def sum_of_bits(vectors: Tensor) -> Tensor:
    """Return an integer for each vector, the same for equal ones.

    A GPU adds the numbers of a row in an order that depends on where the row lies in memory. The
    sum of integers does not depend on the order.
    """
    bits = (vectors + 0.0).view(torch.int32 if vectors.itemsize == 4 else torch.int64).long()
    factors = 2 * torch.arange(bits.shape[-1], device=bits.device) + 1
    return ((bits ^ bits >> 32) * (factors * 0x1E3779B97F4A7C15)).sum(-1)  # signs and exponents low


def first_equal(vectors: Tensor, norms: Tensor) -> Tensor | None:
    """Return, for each token, the first token with an equal vector, possibly itself.

    Tokens of equal norm and sum, on a GPU of equal bits, are compared with the first of them. So
    different vectors of one norm and sum can hide an equal vector, but unequal ones never count as
    equal. None if no two tokens are alike.
    """
    tokens = vectors.shape[-2]
    if not vectors.numel():
        return None
    if vectors.is_cpu:
        norm, total = ((x.float() + 0.0).view(torch.int32).long() for x in (norms, vectors.sum(-1)))
        both = norm << 32 | total & 0xFFFFFFFF
    else:
        both = sum_of_bits(vectors)
    if on_cpu(both):
        sums = np.sort(array(both))
        if not (sums[..., 1:] == sums[..., :-1]).any():
            return None
    ranked, order = both.sort(dim=-1, stable=True)
    opens = torch.ones_like(ranked, dtype=torch.bool)
    opens[..., 1:] = ranked[..., 1:] != ranked[..., :-1]
    if may_branch_on_values(opens) and bool(opens.all()):
        return None
    places = torch.arange(tokens, device=vectors.device)
    start = places.where(opens, 0).cummax(-1).values
    first = torch.empty_like(order).scatter_(-1, order, order.gather(-1, start))
    batch = max(1, EDGES // (vectors.numel() // tokens))
    others = first[..., None].expand(vectors.shape).split(batch, -2)
    both = zip(vectors.split(batch, -2), others, strict=True)
    same = [(part == vectors.gather(-2, other)).all(-1) for part, other in both]
    return torch.where(torch.cat(same, -1), first, places)
