"""Other ways to compute KVzip's scores."""

import torch

from reference import Scored
from spec_tests.scorers.variants_common import accumulation_dtype, ends, real
from spec_tests.variants.registry import register_variant


def with_a_mask(
    queries, keys, repeat_keys, index, chunk=2000, sinks=4, valid=None, repeat_valid=None, past=None
):
    """Compute logits of the whole context, and mask all but the sinks and the chunk."""
    kv_heads, tokens, width = keys.shape[-3:]
    count, repeat = queries.shape[-2], repeat_keys.shape[-2]
    dtype = accumulation_dtype(queries, keys, repeat_keys)
    mask, echoed = real(valid, keys), real(repeat_valid, repeat_keys)
    place = mask.cumsum(-1) - 1 - sinks
    within = mask & (place >= index * chunk) & (place < (index + 1) * chunk)
    seen = torch.cat([within | (mask & (place < 0)), echoed], -1)[..., None, :]
    late = torch.arange(repeat) > torch.arange(repeat - count, repeat)[:, None]
    seen = seen & ~torch.cat([torch.zeros(count, tokens, dtype=torch.bool), late], -1)
    asks = echoed[..., repeat - count :, None] & within[..., None, :]
    every = torch.cat([keys.to(dtype), repeat_keys.to(dtype)], -2)[..., None, :, :]
    logits = (
        queries.to(dtype).unflatten(-3, (kv_heads, -1 if kv_heads else 1)) @ every.mT / width**0.5
    )
    logits = logits.masked_fill(~seen[..., None, None, :, :], -torch.inf)
    drawn = torch.where(asks[..., None, None, :, :], logits.softmax(-1)[..., :tokens], 0)
    best = drawn.amax((-3, -2)) if drawn.numel() else torch.zeros(keys.shape[:-1], dtype=dtype)
    return best if past is None else torch.maximum(*torch.broadcast_tensors(*same(best, past)))


def same(one, other):
    """Return two tensors in their common dtype."""
    dtype = torch.promote_types(one.dtype, other.dtype)
    return one.to(dtype), other.to(dtype)


@register_variant("kvzip")
def chunk_after_chunk(
    queries, keys, repeat_keys, chunk=2000, sinks=4, recent=None, valid=None, repeat_valid=None
):
    """Add up the scores of chunks, which do not overlap."""
    scores = torch.zeros(keys.shape[:-1], dtype=torch.promote_types(keys.dtype, torch.float32))
    for index, (asking, echo) in enumerate(zip(queries, repeat_keys, strict=True)):
        mask = None if repeat_valid is None else repeat_valid[index]
        scores = scores + with_a_mask(asking, keys, echo, index, chunk, sinks, valid, mask)
    return Scored(scores, ends(real(valid, keys), sinks, recent, keys.shape[-3]))
