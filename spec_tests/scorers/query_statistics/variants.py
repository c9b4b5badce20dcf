"""Other ways to compute the moments of queries."""

import torch

from reference import QueryStatistics
from spec_tests.scorers.dense_attention import accumulation_dtype, real
from spec_tests.variants.registry import register_variant


def counting(queries, sinks, valid, past):
    """Return the mask of counted queries, and the number of sinks that each row has skipped."""
    mask = real(valid, queries)
    before = 0 if past is None else past.skipped
    skip = torch.minimum(mask.sum(-1), (sinks - torch.as_tensor(before)).clamp(min=0))
    return mask & (mask.cumsum(-1) > skip[..., None]), before + skip


@register_variant("query_statistics")
def by_weights(queries, sinks=4, valid=None, past=None):
    """Merge sums relative to the common mean."""
    counts, skipped = counting(queries, sinks, valid, past)
    dtype = accumulation_dtype(queries, *(() if past is None else past[2:]))
    weight = counts.to(dtype)[..., None, :, None]
    these, new = queries.to(dtype), counts.sum(-1)
    old = torch.zeros_like(new) if past is None else past.counted
    total = (old + new).clamp(min=1).to(dtype)[..., None, None]
    mean = (these * weight).sum(-2) / total
    if past is not None:
        mean = torch.where(
            new[..., None, None] > 0, mean + past.mean * (old[..., None, None] / total), past.mean
        )
    centred = (these - mean[..., None, :]) * weight
    covariance = centred.mT @ centred / total[..., None]
    if past is not None:
        gap = past.mean - mean
        own = past.covariance + gap[..., :, None] * gap[..., None, :]
        merged = covariance + own * (old[..., None, None] / total)[..., None]
        covariance = torch.where(new[..., None, None, None] > 0, merged, past.covariance)
    return QueryStatistics(old + new, skipped, mean.to(dtype), covariance.to(dtype))


@register_variant("query_statistics", "values")
def by_second_moments(queries, sinks=4, valid=None, past=None):
    """Sum squares in float64, and subtract the squared mean at the end."""
    counts, skipped = counting(queries, sinks, valid, past)
    dtype = accumulation_dtype(queries, *(() if past is None else past[2:]))
    these = queries.double() * counts[..., None, :, None]
    count = counts.sum(-1)
    first, second = these.sum(-2), torch.einsum("...qa,...qb->...ab", these, these)
    if past is not None:
        old = past.counted.double()[..., None, None]
        mean = past.mean.double()
        first = first + old * mean
        second = second + old[..., None] * (
            past.covariance.double() + mean[..., :, None] * mean[..., None, :]
        )
        count = count + past.counted
    total = count.clamp(min=1).double()[..., None, None]
    mean = first / total
    covariance = second / total[..., None] - mean[..., :, None] * mean[..., None, :]
    if past is not None:  # if nothing is counted yet, the earlier moments stay
        none = (count == 0)[..., None, None]
        mean = torch.where(none, past.mean.double(), mean)
        covariance = torch.where(none[..., None], past.covariance.double(), covariance)
    return QueryStatistics(count, skipped, mean.to(dtype), covariance.to(dtype))
