"""KVzip, blocks of repeat queries at a time."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from optimized.vector._rows import protected, real
from reference import Scored, errors
from reference.precision import widen
from reference.scorers import errors as refuse
from reference.scorers import scoring_errors

# queries at a time: bounds the weights to this many rows a head
QUERIES = 128


def kvzip_chunk(
    queries: Float[Tensor, "*batch query_heads queries width"],
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    repeat_keys: Float[Tensor, "*batch kv_heads repeat width"],
    index: int,
    chunk: int = 2000,
    sinks: int = 4,
    valid: Bool[Tensor, "*batch tokens"] | None = None,
    repeat_valid: Bool[Tensor, "*batch repeat"] | None = None,
    past: Float[Tensor, "*batch kv_heads tokens"] | None = None,
) -> Float[Tensor, "*batch kv_heads tokens"]:
    scoring_errors.context(keys)
    scoring_errors.repetition(queries, repeat_keys, keys)
    errors.whole("index", index)
    errors.whole("chunk", chunk, 1)
    errors.whole("sinks", sinks)
    valid = real(valid, keys)
    refuse.padding(valid, (*keys.shape[:-3], keys.shape[-2]))
    repeat_valid = real(repeat_valid, repeat_keys)
    scoring_errors.repeat_padding(repeat_valid, (*keys.shape[:-3], repeat_keys.shape[-2]))
    if past is not None:
        errors.importance("past", past, 2)
        errors.shaped("past", past, keys.shape[:-1])
    drawn = _drawn(queries, keys, repeat_keys, index * chunk, chunk, sinks, valid, repeat_valid)
    return drawn if past is None else torch.maximum(*_alike(drawn, past))


def kvzip(
    queries: tuple[Float[Tensor, "*batch query_heads _ width"], ...],
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    repeat_keys: tuple[Float[Tensor, "*batch kv_heads _ width"], ...],
    chunk: int = 2000,
    sinks: int = 4,
    recent: int | None = None,
    valid: Bool[Tensor, "*batch tokens"] | None = None,
    repeat_valid: tuple[Bool[Tensor, "*batch _"], ...] | None = None,
) -> Scored:
    scoring_errors.context(keys)
    errors.whole("chunk", chunk, 1)
    errors.whole("sinks", sinks)
    if recent is not None:
        errors.whole("recent", recent)
    batch, (kv_heads, tokens) = keys.shape[:-3], keys.shape[-3:-1]
    valid = real(valid, keys)
    refuse.padding(valid, (*batch, tokens))
    longest = int(valid.sum(-1).amax()) if valid.numel() else 0
    chunks = -(-max(0, longest - sinks) // chunk)
    scoring_errors.each_chunk("queries", queries, chunks)
    scoring_errors.each_chunk("repeat_keys", repeat_keys, chunks)
    if repeat_valid is not None:
        scoring_errors.each_chunk("repeat_valid", repeat_valid, chunks)
    scores = keys.new_zeros(keys.shape[:-1], dtype=widen(keys).dtype)
    for index in range(chunks):
        asking, echo = queries[index], repeat_keys[index]
        scoring_errors.repetition(asking, echo, keys)
        mask = real(None if repeat_valid is None else repeat_valid[index], echo)
        scoring_errors.repeat_padding(mask, (*batch, echo.shape[-2]))
        drawn = _drawn(asking, keys, echo, index * chunk, chunk, sinks, valid, mask)
        scores = torch.maximum(*_alike(scores, drawn))
    return Scored(scores, protected(valid, kv_heads, sinks, recent))


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
    """Return the largest weight on each token of the chunk that begins `offset` after the sinks."""
    exact = torch.promote_types(widen(queries).dtype, widen(keys).dtype)
    exact = torch.promote_types(exact, repeat_keys.dtype)
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
    scaled = queries.to(exact).unflatten(-3, (kv_heads, -1)) * width**-0.5
    best = scores.new_zeros(*batch, kv_heads, length)
    for start in range(0, count, QUERIES):
        stop = min(count, start + QUERIES)
        heard = repeat - count + stop
        logits = scaled[..., start:stop, :] @ seen[..., : sinks + length + heard, :].mT
        later = torch.ones(stop - start, heard, dtype=torch.bool, device=keys.device)
        logits[..., sinks + length :].masked_fill_(later.triu(heard - stop + start + 1), -torch.inf)
        unseen = hidden[..., None, None, None, : sinks + length + heard]
        weights = logits.masked_fill_(unseen, -torch.inf).softmax(-1)
        weights = weights[..., sinks : sinks + length]
        silent = ~(asking[..., start:stop, None] & within[..., None, :])[..., None, None, :, :]
        best = torch.maximum(best, weights.masked_fill(silent, 0).amax((-3, -2)))
    places = places.clamp(max=tokens)[..., None, :].expand(best.shape)
    return scores.scatter_(-1, places, best)[..., :tokens].clone()


def _alike(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return both in the wider of their dtypes."""
    exact = torch.promote_types(left.dtype, right.dtype)
    return left.to(exact), right.to(exact)
