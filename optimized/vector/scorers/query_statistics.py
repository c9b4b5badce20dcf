"""Running mean and covariance of queries, of all heads and rows at once."""

import torch
from torch import Tensor

from reference import QueryStatistics
from reference.precision import widest
from reference.scorers._padding import valid_or_all
from reference.scorers.query_statistics import no_statistics


def query_statistics(
    queries: Tensor, sinks: int, valid: Tensor | None, past: QueryStatistics | None
) -> QueryStatistics:
    mask = valid_or_all(valid, queries)
    past = no_statistics(queries) if past is None else past
    exact = widest(queries, past.mean, past.covariance)
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
