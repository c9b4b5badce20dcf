"""What the queries of a prompt are like: their mean and covariance before the rotary embedding."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from reference.contract.enforce import may_read_values, requires
from reference.contract.preconditions import left_padded
from reference.contract.types import Finite, Whole
from reference.precision import widen, widest
from reference.scorers._padding import row_starts, valid_or_all


class QueryStatistics(NamedTuple):
    """The first two moments of the queries of each head, and how many they are of.

    Source:
        HubKV-ExpectedAttention.
    """

    counted: Int64[Tensor, "*batch"]
    skipped: Int64[Tensor, "*batch"]
    mean: Finite[Tensor, "*batch query_heads width"]
    covariance: Finite[Tensor, "*batch query_heads width width"]


def continuing(valid: Tensor | None, past: QueryStatistics | None) -> None:
    """Refuse padding after a row's first token."""
    if past is None or valid is None or not may_read_values(valid):
        return
    if bool(((past.skipped + past.counted > 0) & ~valid[..., 0]).any()):
        raise ValueError("valid must be true after a row's first token, got false at position 0")


@requires(left_padded, continuing)
def query_statistics(
    queries: Finite[Tensor, "*batch query_heads queries width"],
    sinks: Whole = 4,
    valid: Bool[Tensor, "*batch queries"] | None = None,
    past: QueryStatistics | None = None,
) -> QueryStatistics:
    r"""Mean and covariance of the queries of each head, those of the sinks left out.

    $$\mu = \frac1n \sum_q q, \qquad \Sigma = \frac1n \sum_q (q - \mu)(q - \mu)^\top$$

    Args:
        queries: queries as they are before the rotary embedding.
        sinks: how many tokens at the start of a row do not count.
        valid: false at padding, on the left of a row.
        past: the statistics of what came before, which these queries continue: a prompt in
            chunks gives what it gives in one piece.

    Returns:
        The statistics in float32, or float64 where an argument is: 0 where nothing counts yet.
        `skipped` says how many sinks have been left out.

    Source:
        HubKV-ExpectedAttention. From elsewhere: Devoto et al.; the paper names expected attention
        and does not define it (E-U41).

    Reading:
        C3, E-U41: the covariance divides by the number of queries.
    """
    heads, chunk = queries.shape[-3:-1]
    past = no_statistics(queries) if past is None else past
    exact = widest(queries, past.mean, past.covariance)
    mean, covariance = past.mean.to(exact, copy=True), past.covariance.to(exact, copy=True)
    count, skipped = past.counted.clone(), past.skipped.clone()
    for row, first in row_starts(valid_or_all(valid, queries)):
        skip = min(chunk - first, max(0, sinks - int(skipped[row])))
        before, new = int(count[row]), chunk - first - skip
        skipped[row] += skip
        count[row] += new
        for h in range(heads if new else 0):
            these = queries[row][h, first + skip :].to(exact)
            centre = these.sum(0) / new
            spread = (these - centre).mT @ (these - centre) / new
            gap = centre - mean[row][h]
            share = new / (before + new)
            covariance[row][h] += share * (spread - covariance[row][h])
            covariance[row][h] += share * (1 - share) * torch.outer(gap, gap)
            mean[row][h] += share * gap
    return QueryStatistics(count, skipped, mean, covariance)


def no_statistics(queries: Tensor) -> QueryStatistics:
    """Return the statistics of no queries."""
    *batch, heads, _, width = queries.shape
    none = torch.zeros(batch, dtype=torch.int64, device=queries.device)
    mean = widen(queries.new_zeros(*batch, heads, width))
    return QueryStatistics(none, none, mean, mean[..., None] * mean[..., None, :])
