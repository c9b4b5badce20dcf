"""Other ways to pool the attention of a window."""

import torch
import torch.nn.functional as F

from reference import Scored
from spec_tests.scorers.dense_attention import accumulation_dtype, last, real, weights
from spec_tests.variants.registry import register_variant


def drawn(queries, keys, window, valid, log_sum_exp):
    """Return the window's attention to each token before it, for each query head."""
    first = max(0, queries.shape[-2] - window)
    sums = None if log_sum_exp is None else log_sum_exp[..., first:]
    observed = weights(queries[..., first:, :], keys, valid, sums).sum(-2)
    return observed[..., : max(0, keys.shape[-2] - window)]


def scored(pooled, keys, window, valid):
    """Return the mean over the group, 0 in the window and at padding."""
    mask = real(valid, keys)
    scores = F.pad(
        pooled.sum(-2) / max(1, pooled.shape[-2]), (0, keys.shape[-2] - pooled.shape[-1])
    )
    return Scored(scores * mask[..., None, :], last(mask, window, keys.shape[-3]))


@register_variant("snapkv")
def by_pooling(queries, keys, window=32, kernel=5, pooling="average", valid=None, log_sum_exp=None):
    """Pool with the library's functions."""
    observed = drawn(queries, keys, window, valid, log_sum_exp)
    if observed.numel():
        pool = F.avg_pool1d if pooling == "average" else F.max_pool1d
        flat = observed.flatten(0, -2)[:, None]
        observed = pool(flat, kernel, 1, kernel // 2).reshape(observed.shape)
    return scored(observed, keys, window, valid)


@register_variant("snapkv")
def by_windows(queries, keys, window=32, kernel=5, pooling="average", valid=None, log_sum_exp=None):
    """Unfold the pooling windows."""
    observed = drawn(queries, keys, window, valid, log_sum_exp)
    if observed.shape[-1]:
        around = F.pad(observed, (kernel // 2, kernel // 2)).unfold(-1, kernel, 1)
        observed = around.mean(-1) if pooling == "average" else around.amax(-1)
    return scored(observed, keys, window, valid)


@register_variant("snapkv", "values")
def by_running_sums(
    queries, keys, window=32, kernel=5, pooling="average", valid=None, log_sum_exp=None
):
    """Average by differences of cumulative sums."""
    observed = drawn(queries, keys, window, valid, log_sum_exp)
    dtype, tokens = accumulation_dtype(queries, keys, log_sum_exp), observed.shape[-1]
    if pooling == "max":
        rows = [observed[..., max(0, t - kernel // 2) : t + kernel // 2 + 1] for t in range(tokens)]
        pooled = [row.amax(-1) for row in rows]
        return scored(torch.stack(pooled, -1) if pooled else observed, keys, window, valid)
    sums = F.pad(observed.double().cumsum(-1), (1, 0))
    at = torch.arange(tokens)
    high, low = (at + kernel // 2 + 1).clamp(max=tokens), (at - kernel // 2).clamp(min=0)
    return scored(((sums[..., high] - sums[..., low]) / kernel).to(dtype), keys, window, valid)
