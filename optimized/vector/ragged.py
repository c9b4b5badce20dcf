"""Attention over heads of different lengths, each read where it lies."""

from itertools import pairwise
from math import sqrt

import torch
from torch import Tensor

from reference.evict import RaggedCache
from reference.precision import widest

LOGITS = 2**22
"""How many logits there are at one time."""


def ragged_attention(
    queries: Tensor,
    cache: RaggedCache,
    keys: Tensor,
    values: Tensor,
    valid: Tensor | None,
    causal: bool,
    scale: float | None,
) -> Tensor:
    *_, heads, count, width = queries.shape
    kv_heads, tokens = keys.shape[-3:-1]
    rows = keys.shape[:-3].numel()
    exact = widest(queries, keys, cache.keys)
    scaled = queries.to(exact) * (1 / sqrt(width) if scale is None else scale)
    scaled = scaled.reshape(rows * kv_heads, heads // max(1, kv_heads), count, width)
    shape = rows * kv_heads, 1, tokens, width
    since = keys.to(exact).reshape(shape), values.to(exact).reshape(shape)
    spans = [slice(*ends) for ends in pairwise(cache.offsets.tolist())]
    longest = max((span.stop - span.start for span in spans), default=0)
    unseen = hidden(valid, (rows, kv_heads, count, tokens), causal, keys.device)
    out = torch.empty_like(scaled)
    step = max(1, LOGITS // max(1, rows * heads * (longest + tokens)))
    for start in range(0, count, step):
        some = slice(start, start + step)
        hides = unseen if unseen is None or unseen.shape[-2] == 1 else unseen[..., some, :]
        out[:, :, some] = attend(scaled[:, :, some], cache, spans, since, hides)
    return out.to(queries.dtype).view(queries.shape)


def hidden(
    valid: Tensor | None, shape: tuple[int, ...], causal: bool, device: torch.device
) -> Tensor | None:
    """Return which new tokens which queries do not see, or nothing where they see all."""
    rows, kv_heads, count, tokens = shape
    at = torch.arange(tokens - count, tokens, device=device)[:, None]
    later = torch.arange(tokens, device=device) > at
    if valid is None:
        return later if causal and count > 1 else None
    unseen = ~valid.view(rows, 1, 1, tokens).repeat_interleave(kv_heads, 0)
    if not causal:
        return unseen
    return unseen & (torch.arange(tokens, device=device) != at) | later


def attend(
    queries: Tensor,
    cache: RaggedCache,
    spans: list[slice],
    since: tuple[Tensor, Tensor],
    unseen: Tensor | None,
) -> Tensor:
    """Attend to each head's own entries and to the new tokens."""
    longest = max((span.stop - span.start for span in spans), default=0)
    logits = queries.new_full((*queries.shape[:3], longest + since[0].shape[2]), -torch.inf)
    for head, span in enumerate(spans):
        left = cache.keys[span].to(queries.dtype)
        logits[head, ..., : len(left)] = queries[head] @ left.mT
    fresh = queries @ since[0].mT
    logits[..., longest:] = fresh if unseen is None else fresh.masked_fill(unseen, -torch.inf)
    weights = logits.softmax(-1)
    if unseen is not None or not since[0].shape[2]:
        weights = weights.masked_fill((logits == -torch.inf).all(-1, keepdim=True), 0)
    out = weights[..., longest:] @ since[1]
    for head, span in enumerate(spans):
        left = cache.values[span].to(queries.dtype)
        out[head] += weights[head, ..., : len(left)] @ left
    return out
