"""Other correct ways to attend over heads of different lengths."""

import torch
import torch.nn.functional as F

from spec_tests.variants.registry import register_variant


def dtype_of(*tensors):
    """Return the common dtype of tensors, at least float32."""
    dtype = torch.float32
    for x in tensors:
        dtype = torch.promote_types(dtype, x.dtype)
    return dtype


def new_ones_seen(queries, keys, valid, causal):
    """Mark the new tokens that each query sees, `[*batch, 1, queries, tokens]`."""
    count, tokens = queries.shape[-2], keys.shape[-2]
    at = torch.arange(tokens - count, tokens)[:, None]
    column = torch.arange(tokens)
    seen = torch.ones(1, 1, 1, dtype=torch.bool) if valid is None else valid[..., None, None, :]
    if causal:
        seen = (seen | (column == at)) & (column <= at)
    return seen.expand(*queries.shape[:-3], 1, count, tokens)


@register_variant("ragged_attention")
def padded(queries, cache, keys, values, valid=None, causal=True, scale=None):
    """Pad the heads to one length, and mask the padding before the softmax."""
    *batch, kv_heads, tokens, width = keys.shape
    exact = dtype_of(queries, keys, cache.keys)
    counts = cache.offsets.diff().view(*batch, kv_heads)
    most = int(counts.max()) if counts.numel() else 0
    here = torch.arange(most) < counts[..., None]
    old = [torch.zeros(*here.shape, width, dtype=exact) for _ in range(2)]
    for room, entries in zip(old, cache[:2], strict=True):
        room[here] = entries.to(exact)
    group = queries.shape[-3] // max(1, kv_heads)
    whole = [
        torch.cat([room, new.to(exact)], -2).repeat_interleave(group, -3)
        for room, new in zip(old, (keys, values), strict=True)
    ]
    there = here[..., None, :].expand(*batch, kv_heads, queries.shape[-2], most)
    fresh = new_ones_seen(queries, keys, valid, causal).expand(*there.shape[:-1], tokens)
    seen = torch.cat([there, fresh], -1).repeat_interleave(group, -3)
    logits = queries.to(exact) @ whole[0].mT * (width**-0.5 if scale is None else scale)
    weights = logits.masked_fill(~seen, -torch.inf).softmax(-1)
    blind = ~seen.any(-1, keepdim=True)
    return (weights.masked_fill(blind, 0) @ whole[1]).to(queries.dtype)


@register_variant("ragged_attention")
def head_by_head(queries, cache, keys, values, valid=None, causal=True, scale=None):
    """Call PyTorch's own attention once for each head."""
    exact, kv_heads = dtype_of(queries, keys, cache.keys), keys.shape[-3]
    group, out = queries.shape[-3] // max(1, kv_heads), torch.zeros_like(queries)
    fresh = new_ones_seen(queries, keys, valid, causal)[..., 0, :, :]
    places = torch.ones(keys.shape[:-2]).nonzero().tolist()
    for place, start, stop in zip(places, cache.offsets, cache.offsets[1:], strict=False):
        *row, h = place
        span, mine = slice(int(start), int(stop)), slice(h * group, (h + 1) * group)
        left, read = (
            torch.cat([entries[span], new[tuple(place)]]).to(exact)
            for entries, new in zip(cache[:2], (keys, values), strict=True)
        )
        seen = F.pad(fresh[tuple(row)], (int(stop - start), 0), value=True)
        asked = queries[tuple(row)][mine].to(exact)
        found = F.scaled_dot_product_attention(
            asked, left.expand(group, -1, -1), read.expand(group, -1, -1), seen, scale=scale
        )
        out[tuple(row)][mine] = found.masked_fill(~seen.any(-1, keepdim=True), 0).to(out.dtype)
    return out
