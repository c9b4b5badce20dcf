"""KVzip, blocks of repeat queries at a time."""

import torch
from torch import Tensor

from optimized.vector.attention import mass_by_blocks
from optimized.vector.scorers._padding import protected_ends
from reference.precision import widen, widest
from reference.scorers._padding import valid_or_all
from reference.scorers.kvzip import chunk_count
from reference.scorers.scored import Scored


def kvzip_chunk(
    queries: Tensor,
    keys: Tensor,
    repeat_keys: Tensor,
    index: int,
    chunk: int,
    sinks: int,
    valid: Tensor | None,
    repeat_valid: Tensor | None,
    past: Tensor | None,
) -> Tensor:
    exact = widest(queries, keys, repeat_keys)
    *batch, kv_heads, tokens, _ = keys.shape
    scores = keys.new_zeros(*batch, kv_heads, tokens + 1, dtype=exact)
    offset = sinks + index * chunk
    length = min(chunk, tokens - offset)
    if length > 0 and scores.numel() and queries.numel():
        if valid is None and repeat_valid is None:
            parts = keys[..., :sinks, :], keys[..., offset : offset + length, :], repeat_keys
            best = largest_weights(queries, torch.cat(parts, -2), None, exact)
            scores[..., offset : offset + length] = best[..., sinks : sinks + length]
        else:
            valid = valid_or_all(valid, keys)
            first = tokens - valid.sum(-1, keepdim=True)
            places = first + offset + torch.arange(length, device=keys.device)
            anchors = first + torch.arange(sinks, device=keys.device)
            rows = torch.cat([anchors, places], -1).clamp(max=tokens - 1)[..., None, :, None]
            seen = torch.cat([keys.take_along_dim(rows, -2), repeat_keys], -2)
            every = torch.ones_like(anchors, dtype=torch.bool)
            real = torch.cat([every, places < tokens, valid_or_all(repeat_valid, repeat_keys)], -1)
            best = largest_weights(queries, seen, real, exact)
            places = places.clamp(max=tokens)[..., None, :].expand(*batch, kv_heads, length)
            scores.scatter_(-1, places, best[..., sinks : sinks + length])
    drawn = scores[..., :tokens].clone()
    if past is None:
        return drawn
    exact = torch.promote_types(drawn.dtype, past.dtype)
    return torch.maximum(drawn.to(exact), past.to(exact))


def largest_weights(
    queries: Tensor, seen: Tensor, real: Tensor | None, exact: torch.dtype
) -> Tensor:
    """Return the largest weight of each key over the queries, which are the last of a repeat."""
    best = seen.new_zeros(seen.shape[:-1], dtype=exact)
    for stop, drawn in mass_by_blocks(queries, seen, real, None, exact, reduce=torch.amax):
        best[..., :stop] = torch.maximum(best[..., :stop], drawn.amax(-2))
    return best


def kvzip(
    queries: tuple[Tensor, ...],
    keys: Tensor,
    repeat_keys: tuple[Tensor, ...],
    chunk: int,
    sinks: int,
    recent: int | None,
    valid: Tensor | None,
    repeat_valid: tuple[Tensor, ...] | None,
) -> Scored:
    scores = keys.new_zeros(keys.shape[:-1], dtype=widen(keys).dtype)
    for index in range(chunk_count(keys, chunk, sinks, valid)):
        mask = None if repeat_valid is None else repeat_valid[index]
        scores = kvzip_chunk(
            queries[index], keys, repeat_keys[index], index, chunk, sinks, valid, mask, scores
        )
    protected = protected_ends(valid_or_all(valid, keys), keys.shape[-3], sinks, recent)
    return Scored(scores, protected)
