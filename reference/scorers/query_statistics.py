"""What the queries of a prompt are like: their mean and covariance before the rotary embedding."""

from itertools import product
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from reference import errors
from reference.precision import widen
from reference.scorers import errors as refuse
from reference.scorers import scoring_errors


class QueryStatistics(NamedTuple):
    """The first two moments of the queries of each head, and how many they are of.

    Source:
        HubKV-ExpectedAttention.
    """

    counted: Int64[Tensor, "*batch"]
    skipped: Int64[Tensor, "*batch"]
    mean: Float[Tensor, "*batch query_heads width"]
    covariance: Float[Tensor, "*batch query_heads width width"]


def query_statistics(
    queries: Float[Tensor, "*batch query_heads queries width"],
    sinks: int = 4,
    valid: Bool[Tensor, "*batch queries"] | None = None,
    past: QueryStatistics | None = None,
) -> QueryStatistics:
    r"""Mean and covariance of the queries of each head, those of the sinks left out.

    $$\mu = \frac1n \sum_q q, \qquad \Sigma = \frac1n \sum_q (q - \mu)(q - \mu)^\top$$

    Args:
        queries: queries as they are before the rotary embedding, finite.
        sinks: how many tokens at the start of a row do not count, at least 0.
        valid: false at padding, on the left of a row.
        past: the statistics of what came before, which these queries continue: a prompt in
            chunks gives what it gives in one piece.

    Returns:
        The statistics in float32, or float64 where an argument is: 0 where nothing counts yet.
        `skipped` says how many sinks have been left out.

    Raises:
        TypeError: `queries` is not floating point, `sinks` not an integer, `valid` not boolean, or
            `past` no `QueryStatistics`.
        ValueError: `queries` is not finite, has fewer than 3 axes or a width of 0, `sinks` is
            negative, `valid` has another shape than `queries` without heads and width, a false
            after a true, or a false where `past` has counted tokens, or `past` is of other shapes.

    Source:
        HubKV-ExpectedAttention.

    Reading:
        C3, E-U41: the covariance divides by the number of queries.
    """
    errors.floating("queries", queries, 3)
    errors.finite("queries", queries)
    *batch, heads, chunk, width = queries.shape
    errors.whole("sinks", sinks)
    if valid is None:
        valid = queries.new_ones(*batch, chunk, dtype=torch.bool)
    refuse.padding(valid, (*batch, chunk))
    if past is None:
        past = _nothing(queries)
    scoring_errors.kind("past", past, QueryStatistics)
    scoring_errors.moments("past", past, (*batch, heads), width)
    scoring_errors.continues(valid, past.skipped, past.counted)
    exact = torch.promote_types(widen(queries).dtype, widen(past.mean).dtype)
    exact = torch.promote_types(exact, past.covariance.dtype)
    mean, covariance = past.mean.to(exact, copy=True), past.covariance.to(exact, copy=True)
    count, skipped = past.counted.clone(), past.skipped.clone()
    for row in product(*map(range, batch)):
        first = chunk - int(valid[row].sum())
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


def _nothing(queries: Tensor) -> QueryStatistics:
    """Return the statistics of no queries."""
    *batch, heads, _, width = queries.shape
    none = torch.zeros(batch, dtype=torch.int64, device=queries.device)
    mean = widen(queries.new_zeros(*batch, heads, width))
    return QueryStatistics(none, none, mean, mean[..., None] * mean[..., None, :])
