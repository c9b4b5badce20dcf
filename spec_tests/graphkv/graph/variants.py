"""Other correct ways to build the graph."""

import math
from decimal import Decimal

import numpy as np
import torch
import torch.nn.functional as F

from spec_tests.numpy_adapter import among_tensors
from spec_tests.variants.registry import register_variant


@register_variant("source_count")
def by_decimals(keep, fraction=0.3, window=0):
    """Compute in decimal arithmetic."""
    return max(1, math.floor(Decimal(str(fraction)) * (keep - window)))


@register_variant("source_count", "values")
def by_rounding_first(keep, fraction=0.3, window=0):
    """Round the product to nine decimals, so that 0.3 of 10 is 3."""
    return max(1, math.floor(round(fraction * (keep - window), 9)))


@register_variant("source_tokens")
def by_sorted(scores, count, protected=None):
    """Use Python's sort, which is stable."""
    out = torch.zeros(*scores.shape[:-1], count, dtype=torch.int64)
    for head in np.ndindex(scores.shape[:-1]):
        row = scores[head].tolist()
        shut = [False] * len(row) if protected is None else protected[head].tolist()
        ranked = sorted((i for i in range(len(row)) if not shut[i]), key=lambda i: -row[i])
        out[head] = torch.tensor(ranked[:count], dtype=torch.int64)
    return out


@register_variant("source_tokens")
@among_tensors
def by_argsort(scores, count, protected=None):
    """Use NumPy's stable `argsort` of negated scores."""
    wide = scores.astype(float)
    wide = wide if protected is None else np.where(protected, -np.inf, wide)
    return np.argsort(-wide, axis=-1, kind="stable")[..., :count].astype(np.int64)


def ends(keys, kind, queries, values):
    """Return the compared vectors, at least in float32; queries of a group are averaged."""
    vectors = dict(k=keys, q=queries, v=values)
    out = []
    for which in kind:
        x = vectors[which].to(torch.promote_types(vectors[which].dtype, torch.float32))
        out.append(x if x.shape == keys.shape else x.unflatten(-3, (keys.shape[-3], -1)).mean(-3))
    return out


@register_variant("edges", "values")
def by_normalising(keys, sources, kind="kk", queries=None, values=None, clamp=False):
    """Take inner products of vectors of length 1."""
    start, end = (F.normalize(x, dim=-1) for x in ends(keys, kind, queries, values))
    cosines = start.take_along_dim(sources[..., None], -2) @ end.mT
    return cosines.clamp(min=0) if clamp else cosines


@register_variant("edges")
def all_pairs(keys, sources, kind="kk", queries=None, values=None, clamp=False):
    """Compute the cosine of each pair by one sum, independent of its place."""
    start, end = (x.double() for x in ends(keys, kind, queries, values))
    dtype = torch.promote_types(keys.dtype, torch.float32)
    if kind != "kk":
        dtype = torch.promote_types(*(x.dtype for x in ends(keys, kind, queries, values)))
    start = start.take_along_dim(sources[..., None], -2)[..., :, None, :]
    end = end[..., None, :, :]
    lengths = (start**2).sum(-1).sqrt() * (end**2).sum(-1).sqrt()
    cosines = torch.where(lengths == 0, 0, (start * end).sum(-1) / lengths)
    return cosines.clamp(0 if clamp else -1, 1).to(dtype)


@register_variant("edges", "values")
def by_cosine_similarity(keys, sources, kind="kk", queries=None, values=None, clamp=False):
    """Use PyTorch's cosine similarity, which takes no length below 1e-8."""
    start, end = ends(keys, kind, queries, values)
    start = start.take_along_dim(sources[..., None], -2)
    cosines = F.cosine_similarity(start[..., :, None, :], end[..., None, :, :], dim=-1)
    return cosines.relu() if clamp else cosines


@register_variant("neighbour_count")
def by_division(predefined, length):
    """Round a quotient down."""
    return min(predefined, math.floor(length / 1000))


@register_variant("neighbours")
def by_sorting(weights, sources, count, protected=None, spare_sources=False):
    """Sort the edges of one source at a time in Python."""
    reached = torch.zeros_like(weights, dtype=torch.bool)
    for graph in np.ndindex(weights.shape[:-2]):
        chosen = sources[graph].tolist()
        for row, i in enumerate(chosen):
            edge = weights[graph][row].tolist()
            barred = {i, *chosen} if spare_sources else {i}
            open_ = [j for j in range(len(edge)) if j not in barred]
            if protected is not None:
                open_ = [j for j in open_ if not protected[graph][j]]
            for j in sorted(open_, key=lambda j: -edge[j])[:count]:
                reached[(*graph, row, j)] = True
    return reached


@register_variant("neighbours")
def by_rank(weights, sources, count, protected=None, spare_sources=False):
    """A neighbour is a candidate whose rank is below the count."""
    open_ = torch.ones_like(weights, dtype=torch.bool).scatter(-1, sources[..., None], False)
    if protected is not None:
        open_ &= ~protected[..., None, :]
    if spare_sources:
        one_row = torch.zeros_like(open_[..., :1, :]).scatter(-1, sources[..., None, :], True)
        open_ &= ~one_row
    order = (-weights.double()).masked_fill(~open_, torch.inf).argsort(dim=-1, stable=True)
    return (order.argsort(-1) < count) & open_
