"""Other ways to combine mean and variance of a window's attention."""

import torch
import torch.nn.functional as F

from reference import Scored
from spec_tests.scorers.dense_attention import accumulation_dtype, last, real, weights
from spec_tests.variants.registry import register_variant


def observed(queries, keys, window, valid, dtype):
    """Return the weights of the last queries on the tokens before the window, which may be none."""
    old = max(0, keys.shape[-2] - window)
    first = max(0, queries.shape[-2] - window)
    return weights(queries[..., first:, :], keys, valid, dtype=dtype)[..., :old]


def scored(indicator, keys, window, valid, kernel, dtype):
    """Return the pooled mean over the group."""
    scores, mask = torch.zeros(keys.shape[:-1], dtype=dtype), real(valid, keys)
    if indicator.numel():
        mean = indicator.mean(-2)
        around = F.pad(mean, (kernel // 2, kernel // 2)).unfold(-1, kernel, 1)
        scores[..., : mean.shape[-1]] = around.mean(-1)
    return Scored(scores * mask[..., None, :], last(mask, window, keys.shape[-3]))


@register_variant("cake")
def by_var(queries, keys, window=32, gamma=200.0, kernel=5, valid=None):
    """Use the library's variance."""
    dtype = accumulation_dtype(queries, keys)
    seen = observed(queries, keys, window, valid, dtype)
    if not seen.numel():
        return scored(seen[..., :0].flatten(-2), keys, window, valid, kernel, dtype)
    indicator = seen.mean(-2) + gamma * seen.var(-2)
    return scored(indicator, keys, window, valid, kernel, dtype)


@register_variant("cake")
def by_pairs(queries, keys, window=32, gamma=200.0, kernel=5, valid=None):
    """Compute the variance as half the mean squared difference of pairs, in float64."""
    dtype = accumulation_dtype(queries, keys)
    seen = observed(queries, keys, window, valid, torch.float64)
    apart = (seen[..., :, None, :] - seen[..., None, :, :]).square().sum((-3, -2))
    indicator = seen.sum(-2) / window + gamma * apart / (2 * window * (window - 1))
    return scored(indicator, keys, window, valid, kernel, dtype)


@register_variant("cake_preference")
def by_library(queries, keys, window=32, tau1=1.0, tau2=1.0, valid=None):
    """Sum entropies and variances over all axes at once."""
    seen = observed(queries, keys, window, valid, torch.float64)
    if not seen.shape[-1] or not seen.numel():
        return torch.zeros(keys.shape[:-3])
    entropy = -torch.einsum("...hgqt,...hgqt->...", seen, (seen + 1e-10).log())
    change = seen.var(-2).sum((-3, -2, -1))
    return (entropy.clamp(min=0) ** (1 / tau1) * change ** (1 / tau2)).float()


@register_variant("cake_preference", "values")
def head_by_head(queries, keys, window=32, tau1=1.0, tau2=1.0, valid=None):
    """Sum over heads in a loop."""
    seen = observed(queries, keys, window, valid, torch.float64).movedim((-4, -3), (0, 1))
    entropy, change = torch.zeros(2, *keys.shape[:-3], dtype=torch.float64)
    for head in seen.flatten(0, 1):
        entropy = entropy - (head * (head + 1e-10).log()).sum(-1).sum(-1)
        change = change + (head - head.mean(-2, keepdim=True)).square().sum((-2, -1)) / (window - 1)
    return (entropy.clamp(min=0) ** (1 / tau1) * change ** (1 / tau2)).float()
