"""Other correct ways to attend."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from spec_tests.numpy_adapter import among_tensors
from spec_tests.variants.registry import register_variant


def at_least_single(*tensors):
    """Return tensors in their common dtype, at least float32."""
    dtype = torch.float32
    for x in tensors:
        dtype = torch.promote_types(dtype, x.dtype)
    return [x.to(dtype) for x in tensors]


def repeated(x, heads):
    """Repeat each key head for its query heads."""
    return x.repeat_interleave(heads // max(1, x.shape[-3]), -3)


def visible(queries, keys, causal):
    """Mark which tokens each query sees."""
    count, tokens = queries.shape[-2], keys.shape[-2]
    whole = torch.ones(count, tokens, dtype=torch.bool)
    return whole.tril(tokens - count) if causal else whole


@register_variant("attention_weights")
def by_one_product(queries, keys, causal=True, scale=None, log_sum_exp=None):
    """Repeat the key heads, multiply once, mask, and take the softmax."""
    known = [] if log_sum_exp is None else [log_sum_exp]
    queries, keys, *known = at_least_single(queries, keys, *known)
    keys = repeated(keys, queries.shape[-3])
    logits = queries @ keys.mT * (queries.shape[-1] ** -0.5 if scale is None else scale)
    logits = logits.masked_fill(~visible(queries, keys, causal), -torch.inf)
    return (logits - known[0][..., None]).exp() if known else logits.softmax(-1)


@register_variant("attention_weights")
def by_groups(queries, keys, causal=True, scale=None, log_sum_exp=None):
    """Compute logits of a group with einsum; divide powers of two by their sum."""
    *batch, heads, count, width = queries.shape
    kv_heads, tokens = keys.shape[-3:-1]
    wide = [queries, keys] if log_sum_exp is None else [queries, keys, log_sum_exp]
    queries, keys, *known = at_least_single(*wide)
    grouped = queries.reshape(*batch, kv_heads, heads // max(1, kv_heads), count, width)
    logits = torch.einsum("...hgqd,...hkd->...hgqk", grouped, keys)
    logits = logits.reshape(*batch, heads, count, tokens) * (scale or 1 / math.sqrt(width))
    hidden = ~visible(queries, keys, causal)
    if known:
        return ((logits - known[0][..., None]) * math.log2(math.e)).exp2().masked_fill(hidden, 0)
    if not tokens:
        return logits
    logits = logits.masked_fill(hidden, -torch.inf)
    powers = ((logits - logits.amax(-1, keepdim=True)) * math.log2(math.e)).exp2()
    return powers / powers.sum(-1, keepdim=True)


@register_variant("attention_weights", "values")
@among_tensors
def in_numpy(queries, keys, causal=True, scale=None, log_sum_exp=None):
    """Loop over queries, from last to first."""
    heads, (count, width), tokens = queries.shape[-3], queries.shape[-2:], keys.shape[-2]
    group = heads // keys.shape[-3]
    known = np.float32 if log_sum_exp is None else log_sum_exp.dtype
    dtype = np.result_type(queries, keys, known, np.float32)
    weights = np.zeros((*queries.shape[:-1], tokens), dtype)
    for h in range(heads):
        for t in range(count):
            seen = tokens - (count - 1 - t) if causal else tokens
            query = queries[..., h, t, :, None].astype(dtype)
            logits = (keys[..., h // group, :seen, :] @ query)[..., 0] * (scale or width**-0.5)
            if log_sum_exp is None:
                powers = np.exp(logits - logits.max(-1, keepdims=True))
                weights[..., h, t, :seen] = powers / powers.sum(-1, keepdims=True)
            else:
                weights[..., h, t, :seen] = np.exp(logits - log_sum_exp[..., h, t, None])
    return weights


@register_variant("attention")
def with_torch(queries, keys, values, causal=True, scale=None):
    """Call PyTorch's attention with a mask: its own causal mask aligns the first query and key."""
    wide = at_least_single(queries, keys, values)
    heads, mask = queries.shape[-3], visible(queries, keys, causal)
    keys, values = (repeated(x, heads) for x in wide[1:])
    out = F.scaled_dot_product_attention(wide[0], keys, values, attn_mask=mask, scale=scale)
    return out.to(queries.dtype)


@register_variant("attention")
def online(queries, keys, values, causal=True, scale=None, chunk=2):
    """Read two keys at a time with a running maximum, sum and output."""
    wide, tokens = at_least_single(queries, keys, values), keys.shape[-2]
    mask = visible(queries, keys, causal)
    keys, values = (repeated(x, queries.shape[-3]) for x in wide[1:])
    scaled = wide[0] * (1 / math.sqrt(queries.shape[-1]) if scale is None else scale)
    most = torch.full_like(scaled[..., :1], -torch.inf)
    total, out = torch.zeros_like(most), torch.zeros_like(scaled)
    for start in range(0, tokens, chunk):
        here = slice(start, start + chunk)
        logits = scaled @ keys[..., here, :].mT
        logits = logits.masked_fill(~mask[:, here], -torch.inf)
        higher = torch.maximum(most, logits.amax(-1, keepdim=True))
        powers, fade = (logits - higher).exp(), (most - higher).exp()
        out = out * fade + powers @ values[..., here, :]
        total, most = total * fade + powers.sum(-1, keepdim=True), higher
    return (out / total if tokens else out).to(queries.dtype)


@register_variant("attention")
def by_weights(queries, keys, values, causal=True, scale=None):
    """Multiply the weights by the values, all heads of a group at once."""
    weights, values = at_least_single(by_groups(queries, keys, causal, scale), values)
    *batch, heads, count, tokens = weights.shape
    kv_heads = values.shape[-3]
    grouped = weights.reshape(*batch, kv_heads, heads // max(1, kv_heads), count, tokens)
    out = torch.einsum("...hgqk,...hkd->...hgqd", grouped, values)
    return out.reshape(queries.shape).to(queries.dtype)


@register_variant("attention_error")
def between_two_calls(
    queries, keys, values, compressed_keys, compressed_values, causal=True, scale=None
):
    """Subtract two outputs of PyTorch's attention."""
    caches = keys, values, compressed_keys, compressed_values
    queries, *caches = at_least_single(queries, *caches)
    before = with_torch(queries, *caches[:2], causal, scale)
    after = with_torch(queries, *caches[2:], causal, scale)
    return torch.linalg.vector_norm(before - after, dim=-1)


@register_variant("attention_error")
def root_of_squares(
    queries, keys, values, compressed_keys, compressed_values, causal=True, scale=None
):
    """Take the root of a sum of squares, over outputs of an online softmax."""
    caches = keys, values, compressed_keys, compressed_values
    queries, *caches = at_least_single(queries, *caches)
    before = online(queries, *caches[:2], causal, scale)
    after = online(queries, *caches[2:], causal, scale)
    return ((before - after) ** 2).sum(-1).sqrt()
