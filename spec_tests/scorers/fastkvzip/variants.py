"""Other ways to run FastKVzip's gate."""

import math

import torch
import torch.nn.functional as F

from reference import Scored
from spec_tests.scorers.dense_attention import accumulation_dtype, ends, real
from spec_tests.variants.registry import register_variant


@register_variant("fastkvzip")
def by_softmax(hidden, weights, sinks=4, recent=None, epsilon=1e-6, valid=None):
    """Compute a softmax over the token and the learned keys."""
    dtype, dim = accumulation_dtype(hidden, *weights), weights.query.shape[-2]
    x, gate = hidden.to(dtype), type(weights)(*(part.to(dtype) for part in weights))
    query = torch.einsum("...tc,hgdc->...hgtd", x, gate.query) + gate.query_bias[:, :, None]
    query = F.rms_norm(query, (dim,), gate.query_scale, epsilon)
    key = F.rms_norm(
        torch.einsum("...tc,hdc->...htd", x, gate.key), (dim,), gate.key_scale, epsilon
    )
    own = (query * key[..., None, :, :]).sum(-1) / math.sqrt(dim) + gate.bias[..., None]
    rivals = query @ gate.learned[:, None].mT / math.sqrt(dim)
    scores = torch.cat([own[..., None], rivals], -1).softmax(-1)[..., 0].mean(-2)
    mask = real(valid, hidden[..., None, :, :])
    protected = ends(mask, sinks, recent, weights.query.shape[0])
    return Scored(scores.masked_fill(~mask[..., None, :], 0), protected)


@register_variant("fastkvzip", "values")
def as_printed(hidden, weights, sinks=4, recent=None, epsilon=1e-6, valid=None):
    """Divide powers by their sum, as printed."""

    def normed(y, scale):
        return y / torch.sqrt(torch.mean(y * y, -1, keepdim=True) + epsilon) * scale

    dtype, (kv_heads, group, dim) = accumulation_dtype(hidden, *weights), weights.query.shape[:3]
    x, gate = hidden.double(), type(weights)(*(part.double() for part in weights))
    scores = x.new_zeros(*x.shape[:-2], kv_heads, x.shape[-2])
    for h in range(kv_heads):
        key = normed(F.linear(x, gate.key[h]), gate.key_scale)
        for g in range(group):
            query = normed(F.linear(x, gate.query[h, g], gate.query_bias[h, g]), gate.query_scale)
            own = (key * query).sum(-1, keepdim=True) / dim**0.5 + gate.bias[h, g]
            powers = (F.linear(query, gate.learned[h]) / dim**0.5 - own).exp()
            scores[..., h, :] += 1 / (1 + powers.sum(-1)) / group
    mask = real(valid, hidden[..., None, :, :])
    protected = ends(mask, sinks, recent, kv_heads)
    return Scored((scores * mask[..., None, :]).to(dtype), protected)


@register_variant("fastkvzip_loss")
def by_logarithms(scores, targets, valid=None):
    """Compute logarithms of at least −100."""
    dtype = accumulation_dtype(scores, targets)
    s, t = scores.to(dtype), targets.to(dtype)
    terms = t * s.log().clamp(min=-100) + (1 - t) * (1 - s).log().clamp(min=-100)
    mask = real(valid, scores[..., None]).to(dtype)
    return -(terms * mask[..., None, :]).sum() / mask.sum()
