"""Other ways to compute expected attention."""

import torch

from reference import Scored
from spec_tests.scorers.dense_attention import accumulation_dtype, ends, real
from spec_tests.variants.registry import register_variant


@register_variant("expected_attention")
def by_einsum(statistics, keys, values, rotation, sinks=4, epsilon=0.0, valid=None):
    """Rotate the keys backward instead of rotating the moments."""
    kv_heads, width = keys.shape[-3], keys.shape[-1]
    dtype = accumulation_dtype(keys, values, rotation, statistics.mean, statistics.covariance)
    turned = keys.to(dtype) @ rotation.to(dtype)[..., None, :, :]
    shape = (kv_heads, statistics.mean.shape[-2] // max(1, kv_heads))
    mean = statistics.mean.to(dtype).unflatten(-2, shape)
    covariance = statistics.covariance.to(dtype).unflatten(-3, shape)
    linear = torch.einsum("...htd,...hgd->...hgt", turned, mean) / width**0.5
    square = torch.einsum("...hta,...hgab,...htb->...hgt", turned, covariance, turned)
    mask = real(valid, keys)
    seen = (mask & (mask.cumsum(-1) > sinks))[..., None, None, :]
    logits = (linear + square / (2 * width)).masked_fill(~seen, -torch.inf)
    drawn = torch.where(seen, logits.softmax(-1), 0).sum(-2) / max(1, shape[1])
    scores = (drawn + epsilon) * values.to(dtype).norm(dim=-1) * seen[..., 0, :]
    return Scored(scores, ends(mask, sinks, 0, kv_heads))


@register_variant("expected_attention", "values")
def token_by_token(statistics, keys, values, rotation, sinks=4, epsilon=0.0, valid=None):
    """Compute exponentials in float64, and normalise at the end."""
    kv_heads, tokens, width = keys.shape[-3:]
    dtype = accumulation_dtype(keys, values, rotation, statistics.mean, statistics.covariance)
    group = statistics.mean.shape[-2] // max(1, kv_heads)
    turn = rotation.double()[..., None, :, :]
    mean = (turn @ statistics.mean.double()[..., None])[..., 0]
    covariance = turn @ statistics.covariance.double() @ turn.mT
    each = keys.double().repeat_interleave(group, -3)
    logits = (each * mean[..., None, :]).sum(-1) / width**0.5
    logits = logits + ((each @ covariance) * each).sum(-1) / (2 * width)
    mask = real(valid, keys)
    seen = mask & (mask.cumsum(-1) > sinks)
    powers = torch.zeros_like(logits)
    for t in range(tokens):
        powers[..., t] = logits[..., t].exp() * seen[..., None, t]
    shares = powers / powers.sum(-1, keepdim=True).clamp(min=1e-300)
    drawn = shares.unflatten(-2, (kv_heads, group)).sum(-2) / max(1, group)
    lengths = values.double().square().sum(-1).sqrt()
    scores = (drawn + epsilon) * lengths * seen[..., None, :]
    return Scored(scores.to(dtype), ends(mask, sinks, 0, kv_heads))
