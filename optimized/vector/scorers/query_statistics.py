"""Running mean and covariance of queries, of all heads and rows at once."""

import torch
from torch import Tensor

from optimized._doubles import doubles_on_cpu
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
    share = share_of(new, past.counted, exact)[..., None, None]
    counts = new.clamp(min=1).to(exact)[..., None]
    moments = [moments_of_head(head, counted, counts, exact) for head in queries.unbind(-3)]
    centre, spread = past.mean, past.covariance
    if moments:
        centres, spreads = zip(*moments, strict=True)
        centre, spread = torch.stack(centres, -2), torch.stack(spreads, -3)
    gap = centre - past.mean
    between = share[..., None] * (1 - share[..., None]) * gap[..., None] * gap[..., None, :]
    covariance = past.covariance + share[..., None] * (spread - past.covariance) + between
    mean = past.mean + share * gap
    return QueryStatistics(past.counted + new, past.skipped + skip, mean, covariance)


@doubles_on_cpu
def share_of(new: Tensor, counted: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the share of `new` queries among them and those `counted` before."""
    return (new / (counted + new).clamp(min=1).double()).to(dtype)


def moments_of_head(
    queries: Tensor, counted: Tensor, count: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return mean and covariance of the `counted` queries of one head, `each` in number."""
    weight = counted.to(dtype)[..., None]
    these = queries.to(dtype) * weight
    centre = these.sum(-2) / count
    these = (these - centre[..., None, :]).mul_(weight)
    return centre, these.mT @ these / count[..., None]
