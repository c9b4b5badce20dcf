"""Attention over heads of different lengths, one head at a time, without padding."""

from itertools import pairwise
from math import sqrt

import torch
from torch import Tensor

from optimized._dispatch import kernel_on_gpu
from reference.evict import RaggedCache
from reference.precision import widest
from reference.ragged_attention import RaggedAttention

LOGITS = 2**22
"""Most logits in memory at a time."""


@kernel_on_gpu
def ragged_attention(
    queries: Tensor,
    cache: RaggedCache,
    keys: Tensor,
    values: Tensor,
    valid: Tensor | None,
    causal: bool,
    scale: float | None,
    log_sum_exp: bool,
) -> Tensor | RaggedAttention:
    *_, heads, count, width = queries.shape
    kv_heads, tokens = keys.shape[-3:-1]
    rows = keys.shape[:-3].numel()
    exact = widest(queries, keys, cache.keys)
    scaled = queries.to(exact) * (1 / sqrt(width) if scale is None else scale)
    scaled = scaled.reshape(rows * kv_heads, heads // max(1, kv_heads), count, width)
    shape = rows * kv_heads, 1, tokens, width
    since = keys.to(exact).reshape(shape), values.to(exact).reshape(shape)
    lengths = [stop - start for start, stop in pairwise(cache.offsets.tolist())]
    longest = max(lengths, default=0)
    unseen = unseen_mask(valid, (rows, kv_heads, count, tokens), causal, keys.device)
    step = max(1, LOGITS // max(1, rows * heads * (longest + tokens)))
    sums = scaled.new_empty(scaled.shape[:-1]) if log_sum_exp else None
    if step >= count:
        out = attend(scaled, cache, lengths, since, unseen, sums)
    else:
        out = torch.empty_like(scaled)
        for start in range(0, count, step):
            chunk = slice(start, start + step)
            hides = unseen if unseen is None or unseen.shape[-2] == 1 else unseen[..., chunk, :]
            part = None if sums is None else sums[:, :, chunk]
            out[:, :, chunk] = attend(scaled[:, :, chunk], cache, lengths, since, hides, part)
    out = out.to(queries.dtype).view(queries.shape)
    return out if sums is None else RaggedAttention(out, sums.view(queries.shape[:-1]))


def unseen_mask(
    valid: Tensor | None, shape: tuple[int, ...], causal: bool, device: torch.device
) -> Tensor | None:
    """Return the mask of new tokens that each query does not see, or None if all see all."""
    rows, kv_heads, count, tokens = shape
    if valid is None and (count == 1 or not causal):
        return None
    own_position = torch.arange(tokens - count, tokens, device=device)[:, None]
    later = torch.arange(tokens, device=device) > own_position
    if valid is None:
        return later
    unseen = ~valid.view(rows, 1, 1, tokens).repeat_interleave(kv_heads, 0)
    if not causal:
        return unseen
    return unseen & (torch.arange(tokens, device=device) != own_position) | later


def attend(
    queries: Tensor,
    cache: RaggedCache,
    lengths: list[int],
    since: tuple[Tensor, Tensor],
    unseen: Tensor | None,
    sums: Tensor | None,
) -> Tensor:
    """Return the attention of each head to its own entries and the new tokens; write its sums."""
    fresh = queries @ since[0].mT
    fresh = fresh if unseen is None else fresh.masked_fill(unseen, -torch.inf)
    olds = zip(cache.keys.split(lengths), cache.values.split(lengths), strict=True)
    news = zip(queries.flatten(1, 2), fresh.flatten(1, 2), since[1][:, 0], strict=True)
    out = []
    for head, ((query, later, value), (key, old)) in enumerate(zip(news, olds, strict=True)):
        logits = torch.cat([query @ key.to(query.dtype).mT, later], -1)
        weights = logits.softmax(-1)
        if sums is not None:
            sums[head] = logits.logsumexp(-1).view_as(sums[head])
        if unseen is not None:
            weights = weights.masked_fill((logits == -torch.inf).all(-1, keepdim=True), 0)
        left, right = weights.split([len(key), len(value)], -1)
        out.append(torch.addmm(right @ value, left, old.to(query.dtype)))
    return torch.stack(out).view(queries.shape) if out else torch.empty_like(queries)
