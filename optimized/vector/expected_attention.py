"""Query statistics and expected attention, all heads at once."""

import math

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from optimized.vector._rows import protected, real
from reference import QueryStatistics, Scored, errors
from reference.precision import widen
from reference.scorers import errors as refuse
from reference.scorers import scoring_errors

# tokens at a time: bounds what the quadratic form makes of each key for each query head
TOKENS = 1024


def query_statistics(
    queries: Float[Tensor, "*batch query_heads queries width"],
    sinks: int = 4,
    valid: Bool[Tensor, "*batch queries"] | None = None,
    past: QueryStatistics | None = None,
) -> QueryStatistics:
    errors.floating("queries", queries, 3)
    errors.finite("queries", queries)
    *batch, heads, chunk, width = queries.shape
    errors.whole("sinks", sinks)
    mask = real(valid, queries)
    refuse.padding(mask, (*batch, chunk))
    if past is None:
        past = _nothing(queries)
    scoring_errors.kind("past", past, QueryStatistics)
    scoring_errors.moments("past", past, (*batch, heads), width)
    scoring_errors.continues(mask, past.skipped, past.counted)
    exact = torch.promote_types(widen(queries).dtype, widen(past.mean).dtype)
    exact = torch.promote_types(exact, past.covariance.dtype)
    skip = torch.minimum(mask.sum(-1), (sinks - past.skipped).clamp(min=0))
    counted = mask & (mask.cumsum(-1) > skip[..., None])
    new = counted.sum(-1)
    share = (new / (past.counted + new).clamp(min=1).double()).to(exact)[..., None, None]
    weight = counted.to(exact)[..., None, :, None]
    each = new.clamp(min=1)[..., None, None]
    these = queries.to(exact) * weight
    centre = these.sum(-2) / each
    these = (these - centre[..., None, :]) * weight
    spread = these.mT @ these / each[..., None]
    gap = centre - past.mean
    between = share[..., None] * (1 - share[..., None]) * gap[..., None] * gap[..., None, :]
    covariance = past.covariance + share[..., None] * (spread - past.covariance) + between
    mean = past.mean + share * gap
    return QueryStatistics(past.counted + new, past.skipped + skip, mean, covariance)


def _nothing(queries: Tensor) -> QueryStatistics:
    """Return the statistics of no queries."""
    *batch, heads, _, width = queries.shape
    none = torch.zeros(batch, dtype=torch.int64, device=queries.device)
    mean = widen(queries.new_zeros(*batch, heads, width))
    return QueryStatistics(none, none, mean, mean[..., None] * mean[..., None, :])


def mean_rotation(
    frequencies: Float[Tensor, " half"],
    start: int | Int64[Tensor, "*batch"],
    future: int = 512,
) -> Float[Tensor, "*batch width width"]:
    errors.floating("frequencies", frequencies)
    errors.finite("frequencies", frequencies)
    scoring_errors.starts("start", start)
    errors.whole("future", future, 1)
    first = torch.as_tensor(start, dtype=torch.float64, device=frequencies.device)
    steps = torch.arange(future, dtype=torch.float64, device=frequencies.device)
    angles = (first[..., None] + steps)[..., None] * frequencies.double()
    cosines, sines = angles.cos().mean(-2).diag_embed(), angles.sin().mean(-2).diag_embed()
    upper, lower = torch.cat([cosines, -sines], -1), torch.cat([sines, cosines], -1)
    return torch.cat([upper, lower], -2).to(widen(frequencies).dtype)


def expected_attention(
    statistics: QueryStatistics,
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    values: Float[Tensor, "*batch kv_heads tokens width"],
    rotation: Float[Tensor, "width width"] | Float[Tensor, "*batch width width"],
    sinks: int = 4,
    epsilon: float = 0.0,
    valid: Bool[Tensor, "*batch tokens"] | None = None,
) -> Scored:
    scoring_errors.kind("statistics", statistics, QueryStatistics)
    scoring_errors.cached(keys, values)
    *batch, kv_heads, tokens, width = keys.shape
    heads = statistics.mean.shape[-2] if statistics.mean.ndim > 1 else 0
    scoring_errors.moments("statistics", statistics, (*batch, heads), width)
    scoring_errors.group("statistics", heads, kv_heads)
    scoring_errors.turning("rotation", rotation, batch, width)
    errors.whole("sinks", sinks)
    scoring_errors.non_negative_finite("epsilon", epsilon)
    mask = real(valid, keys)
    refuse.padding(mask, (*batch, tokens))
    exact = torch.promote_types(statistics.mean.dtype, statistics.covariance.dtype)
    exact = torch.promote_types(torch.promote_types(exact, rotation.dtype), values.dtype)
    exact = torch.promote_types(exact, widen(keys).dtype)
    turn = rotation.to(exact)[..., None, :, :]
    mean = (turn @ statistics.mean.to(exact)[..., None])[..., 0]
    covariance = turn @ statistics.covariance.to(exact) @ turn.mT
    group = heads // max(1, kv_heads)
    shape = (*batch, kv_heads, group, width)
    logits = _logits(keys.to(exact), mean.reshape(shape), covariance.reshape(*shape, width))
    unseen = ~(mask & (mask.cumsum(-1) > sinks))[..., None, :]
    logits = logits.masked_fill(unseen[..., None, :], -torch.inf)
    weights = logits.softmax(-1).masked_fill(unseen[..., None, :], 0)
    drawn = weights.mean(-2) if group else keys.new_zeros(keys.shape[:-1], dtype=exact)
    scores = (drawn + epsilon) * torch.linalg.vector_norm(values.to(exact), dim=-1)
    scores = scores.masked_fill(unseen, 0)
    errors.in_range("keys", scores)
    return Scored(scores, protected(mask, kv_heads, sinks, 0))


def _logits(keys: Tensor, mean: Tensor, covariance: Tensor) -> Tensor:
    """Return z of every query head: linear and quadratic in the keys of its group."""
    *batch, group, width, _ = covariance.shape
    tokens = keys.shape[-2]
    linear = mean / math.sqrt(width)
    quadratic = (covariance / (2 * width)).movedim(-3, -2).reshape(*batch, width, group * width)
    logits = keys.new_empty(*batch, group, tokens)
    for start in range(0, tokens, TOKENS):
        some = keys[..., start : start + TOKENS, :]
        turned = (some @ quadratic).unflatten(-1, (group, width))
        squares = (turned * some[..., None, :]).sum(-1).mT
        logits[..., start : start + TOKENS] = linear @ some.mT + squares
    return logits
