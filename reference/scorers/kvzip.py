"""KVzip: the largest attention a token draws while the model repeats the context."""

from itertools import product

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reference import errors
from reference.attention import attention_weights
from reference.hubkv.refine import protected_mask
from reference.precision import widen
from reference.scorers import errors as refuse
from reference.scorers import scoring_errors
from reference.scorers.scored import Scored


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
    r"""Score one chunk of the context by the queries that repeat it.

    $$s_j = \max_{g} \max_{q} \, \operatorname{softmax}\Bigl( \frac{q
      \, [K_{\text{sinks}}; K_{\text{chunk}}; K_{\text{repeat}, \le q}]^\top}{\sqrt d} \Bigr)_j$$

    Args:
        queries: queries of the repeat input, which asks for the chunk and then repeats it: all of
            them, or a stretch; the last one sits at the last of `repeat_keys`.
        keys: keys of the whole context, finite.
        repeat_keys: keys of the repeat input up to the last query, finite.
        index: which chunk, from 0.
        chunk: length of a chunk, at least 1; the first begins after the sinks, the last may be
            shorter.
        sinks: how many tokens at the start of a row every query sees, at least 0.
        valid: false at padding, on the left of a row.
        repeat_valid: the same for the repeat input.
        past: scores so far, at least 0: the result is the larger of the two everywhere.

    Returns:
        The scores of each key head in float32, or float64 where an argument is: within the chunk
        in [0, 1], elsewhere those of `past`, or 0. Stretches of queries, handed over one after
        the other, give what all of them give at once.

    Raises:
        TypeError: `queries`, `keys`, `repeat_keys` or `past` is not floating point, `index`,
            `chunk` or `sinks` not an integer, or `valid` or `repeat_valid` not boolean.
        ValueError: `queries`, `keys` or `repeat_keys` is not finite or does not fit the others,
            there are more queries than tokens of the repeat input, `index` or `sinks` is negative,
            `chunk` below 1, `valid`, `repeat_valid` or `past` is of another shape, `past` is
            negative or not finite, or a mask has a false after a true.

    Source:
        HubKV-KVzip.

    Reading:
        C3, C4, E-U43: the repeat input shares the softmax, so that chunks are part of the
        definition; no other token of the context is seen.
    """
    scoring_errors.context(keys)
    scoring_errors.repetition(queries, repeat_keys, keys)
    errors.whole("index", index)
    errors.whole("chunk", chunk, 1)
    errors.whole("sinks", sinks)
    batch, (kv_heads, tokens) = keys.shape[:-3], keys.shape[-3:-1]
    count, repeat = queries.shape[-2], repeat_keys.shape[-2]
    if valid is None:
        valid = keys.new_ones(*batch, tokens, dtype=torch.bool)
    refuse.padding(valid, (*batch, tokens))
    if repeat_valid is None:
        repeat_valid = keys.new_ones(*batch, repeat, dtype=torch.bool)
    scoring_errors.repeat_padding(repeat_valid, (*batch, repeat))
    exact = torch.promote_types(widen(queries).dtype, widen(keys).dtype)
    exact = torch.promote_types(exact, repeat_keys.dtype)
    if past is None:
        past = keys.new_zeros(keys.shape[:-1], dtype=exact)
    errors.importance("past", past, 2)
    errors.shaped("past", past, keys.shape[:-1])
    scores = past.to(torch.promote_types(exact, past.dtype), copy=True)
    group = queries.shape[-3] // max(1, kv_heads)
    for row in product(*map(range, batch)):
        first = tokens - int(valid[row].sum())
        start = first + sinks + index * chunk
        stop = min(tokens, start + chunk)
        if start >= stop:
            continue
        seen = keys[row][:, [*range(first, first + sinks), *range(start, stop)]].to(exact)
        blank = repeat - int(repeat_valid[row].sum())
        for q in range(max(0, blank - (repeat - count)), count):
            echo = repeat_keys[row][:, blank : repeat - count + q + 1].to(exact)
            query = queries[row][:, q, None].to(exact)
            weights = attention_weights(query, torch.cat([seen, echo], -2), causal=False)
            for h in range(queries.shape[-3]):
                best = scores[row][h // group, start:stop]
                drawn = weights[h, 0, sinks : sinks + stop - start]
                scores[row][h // group, start:stop] = torch.maximum(best, drawn)
    return scores


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
    r"""Score a whole context by the queries that repeat it, chunk after chunk.

    $$s_j = \max_{g} \max_{q \,\text{repeats}\, c(j)} A^{(g)}_{q, j}, \qquad
      P = \{j < n_{\text{sinks}}\} \cup \{j \ge N - r\}$$

    Args:
        queries: for each chunk, the queries of its repeat input.
        keys: keys of the whole context, finite.
        repeat_keys: for each chunk, the keys of its repeat input, finite.
        chunk: length of a chunk, at least 1; the first begins after the sinks.
        sinks: how many tokens at the start of a row every query sees, and are protected.
        recent: how many at the end are protected as well, at least 0; by default
            $\lfloor 0.02\,N \rfloor$ of the row's real tokens.
        valid: false at padding, on the left of a row. Chunks are counted from a row's first real
            token.
        repeat_valid: for each chunk, the same for its repeat input.

    Returns:
        The scores of each key head, in [0, 1], in float32, or float64 where an argument is: 0 at
        the sinks, which belong to no chunk.

    Raises:
        TypeError: `queries`, `repeat_keys` or `repeat_valid` is no tuple, a tensor not floating
            point, a mask not boolean, or `chunk`, `sinks` or `recent` not an integer.
        ValueError: there are not as many entries as chunks, a tensor is not finite or does not fit
            the others, `chunk` is below 1, `sinks` or `recent` negative, or a mask has a false
            after a true.

    Source:
        HubKV-KVzip.

    Reading:
        C3, C4, E-U13, E-U43: the chunk is part of the definition; recent tokens are protected as
        for FastKVzip.
    """
    scoring_errors.context(keys)
    errors.whole("chunk", chunk, 1)
    errors.whole("sinks", sinks)
    if recent is not None:
        errors.whole("recent", recent)
    batch, tokens = keys.shape[:-3], keys.shape[-2]
    if valid is None:
        valid = keys.new_ones(*batch, tokens, dtype=torch.bool)
    refuse.padding(valid, (*batch, tokens))
    longest = max((int(valid[row].sum()) for row in product(*map(range, batch))), default=0)
    chunks = -(-max(0, longest - sinks) // chunk)
    scoring_errors.each_chunk("queries", queries, chunks)
    scoring_errors.each_chunk("repeat_keys", repeat_keys, chunks)
    if repeat_valid is not None:
        scoring_errors.each_chunk("repeat_valid", repeat_valid, chunks)
    scores = keys.new_zeros(keys.shape[:-1], dtype=widen(keys).dtype)
    for index in range(chunks):
        mask = None if repeat_valid is None else repeat_valid[index]
        scores = kvzip_chunk(
            queries[index], keys, repeat_keys[index], index, chunk, sinks, valid, mask, scores
        )
    protected = torch.zeros_like(scores, dtype=torch.bool)
    for row in product(*map(range, batch)):
        count = int(valid[row].sum())
        mask = protected_mask(count, sinks, recent).to(keys.device)
        protected[row][:, tokens - count :] = mask
    return Scored(scores, protected)
