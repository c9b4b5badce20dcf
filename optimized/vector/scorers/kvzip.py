"""KVzip, blocks of repeat queries at a time."""

import torch
from torch import Tensor

import reference
from optimized._rebind import rebind
from optimized.vector.scorers._padding import protected_ends
from reference._validation.contract import may_branch_on_values
from reference.precision import widest
from reference.scorers._padding import valid_or_all

# queries at a time, which bounds the memory of weights
QUERIES = 128


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
    valid, repeat_valid = valid_or_all(valid, keys), valid_or_all(repeat_valid, repeat_keys)
    drawn = _drawn(queries, keys, repeat_keys, index * chunk, chunk, sinks, valid, repeat_valid)
    if past is None:
        return drawn
    exact = torch.promote_types(drawn.dtype, past.dtype)
    return torch.maximum(drawn.to(exact), past.to(exact))


def _drawn(
    queries: Tensor,
    keys: Tensor,
    repeat_keys: Tensor,
    offset: int,
    chunk: int,
    sinks: int,
    valid: Tensor,
    repeat_valid: Tensor,
) -> Tensor:
    """Return the maximum weight on each token of the chunk at `offset` after the sinks."""
    exact = widest(queries, keys, repeat_keys)
    *batch, kv_heads, tokens, width = keys.shape
    scores = keys.new_zeros(*batch, kv_heads, tokens + 1, dtype=exact)
    length = min(chunk, tokens - sinks - offset)
    if length <= 0 or not scores.numel() or not queries.numel():
        return scores[..., :tokens].clone()
    first = tokens - valid.sum(-1, keepdim=True)
    places = first + sinks + offset + torch.arange(length, device=keys.device)
    anchors = first + torch.arange(sinks, device=keys.device)
    within = places < tokens
    rows = torch.cat([anchors, places], -1).clamp(max=tokens - 1)[..., None, :, None]
    context = keys.take_along_dim(rows, -2).to(exact)
    hidden = ~torch.cat([torch.ones_like(anchors, dtype=torch.bool), within, repeat_valid], -1)
    seen = torch.cat([context, repeat_keys.to(exact)], -2)[..., None, :, :]
    count, repeat = queries.shape[-2], repeat_keys.shape[-2]
    asking = repeat_valid[..., repeat - count :]
    whole = may_branch_on_values(hidden) and not bool(hidden.any())
    scaled = queries.to(exact).unflatten(-3, (kv_heads, -1)) * width**-0.5
    best = scores.new_zeros(*batch, kv_heads, length)
    for start in range(0, count, QUERIES):
        stop = min(count, start + QUERIES)
        heard = repeat - count + stop
        logits = scaled[..., start:stop, :] @ seen[..., : sinks + length + heard, :].mT
        later = torch.ones(stop - start, heard, dtype=torch.bool, device=keys.device)
        logits[..., sinks + length :].masked_fill_(later.triu(heard - stop + start + 1), -torch.inf)
        if not whole:
            unseen = hidden[..., None, None, None, : sinks + length + heard]
            logits.masked_fill_(unseen, -torch.inf)
        weights = logits.softmax(-1)[..., sinks : sinks + length]
        if not whole:
            silent = ~(asking[..., start:stop, None] & within[..., None, :])[..., None, None, :, :]
            weights = weights.masked_fill(silent, 0)
        best = torch.maximum(best, weights.amax((-3, -2)))
    places = places.clamp(max=tokens)[..., None, :].expand(best.shape)
    return scores.scatter_(-1, places, best)[..., :tokens].clone()


kvzip = rebind(reference.kvzip, kvzip_chunk=kvzip_chunk, protected_ends=protected_ends)
