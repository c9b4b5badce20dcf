"""Other ways to sum attention mass."""

import torch

from reference import Scored
from spec_tests.scorers.dense_attention import accumulation_dtype, last, real, weights
from spec_tests.variants.registry import register_variant


def added(drawn, mass, valid):
    """Return the sum of new and earlier mass, 0 at padding."""
    total = drawn if mass is None else drawn.to(torch.promote_types(drawn.dtype, mass.dtype))
    if mass is not None:
        total[..., : mass.shape[-1]] += mass
    return torch.where(real(valid, drawn[..., None])[..., None, :], total, 0)


@register_variant("h2o_mass")
def by_one_softmax(queries, keys, mass=None, valid=None, log_sum_exp=None):
    """Compute all weights at once in float64, for short prompts."""
    drawn = weights(queries, keys, valid, log_sum_exp, torch.float64).sum((-3, -2))
    return added(drawn.to(accumulation_dtype(queries, keys, log_sum_exp)), mass, valid)


@register_variant("h2o_mass")
def by_online_softmax(queries, keys, mass=None, valid=None, log_sum_exp=None):
    """Loop over blocks of keys twice: for the sum of exponentials, then for the weights."""
    kv_heads, tokens, width = keys.shape[-3:]
    dtype, count = accumulation_dtype(queries, keys, log_sum_exp), queries.shape[-2]
    asking = queries.to(dtype).unflatten(-3, (kv_heads, queries.shape[-3] // max(1, kv_heads)))
    asking, mask = asking / width**0.5, real(valid, keys)
    at = torch.arange(tokens)
    blocks = [slice(start, start + 2) for start in range(0, tokens, 2)]

    def logits(block):
        """Return the logits of some keys, minus infinity where a query does not see them."""
        seen = mask[..., None, block] & (at[block] <= at[tokens - count :, None])
        unseen = ~seen[..., None, None, :, :]
        return (asking @ keys[..., None, block, :].to(dtype).mT).masked_fill(unseen, -torch.inf)

    if log_sum_exp is None:
        most = asking.new_full(asking.shape[:-1], -1e30)
        total = torch.zeros_like(most)
        for block in blocks:
            found = logits(block)
            higher = torch.maximum(most, found.amax(-1))
            powers = (found - higher[..., None]).exp().sum(-1)
            total, most = total * (most - higher).exp() + powers, higher
        sums = most + total.log()
    else:
        sums = log_sum_exp.unflatten(-2, asking.shape[-4:-2])
    # padded queries have no weights
    asks = mask[..., None, None, tokens - count :, None]
    drawn = [
        torch.where(asks, (logits(b) - sums[..., None]).exp(), 0).sum((-3, -2)) for b in blocks
    ]
    drawn = torch.cat([keys.new_zeros(*keys.shape[:-2], 0, dtype=dtype), *drawn], -1)
    return added(drawn, mass, valid)


@register_variant("h2o")
def by_counting_back(mass, keep, valid=None, recent=None):
    """Count tokens from the end."""
    recent = keep // 2 if recent is None else recent
    mask = real(valid, mass[..., None])
    scores = mass.to(torch.promote_types(mass.dtype, torch.float32)) * mask[..., None, :]
    return Scored(scores, last(mask, recent, mass.shape[-2]))
