"""KVzip: the largest attention a token draws while the model repeats the context."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reference.attention import attention_weights
from reference.contract.enforce import may_read_values, requires
from reference.contract.preconditions import false_on_the_left, grouped, left_padded, wide
from reference.contract.types import Finite, Importance, Positive, Whole
from reference.precision import widen, widest
from reference.scorers._padding import protected_ends, row_starts, valid_or_all
from reference.scorers.scored import Scored


def repeating(queries: Tensor, repeat_keys: Tensor, which: str | None = None) -> None:
    """Refuse more queries than tokens of the repeat input."""
    count, repeat, which = queries.shape[-2], repeat_keys.shape[-2], which or ""
    if count > repeat:
        raise ValueError(
            f"queries{which} must be at most as many as the {repeat} tokens of "
            f"repeat_keys{which}, got {count}"
        )


def repeat_padded(repeat_valid: Tensor | None) -> None:
    """Refuse padding that is not on the left of a repeat input."""
    false_on_the_left("repeat_valid", repeat_valid)


@requires(wide, grouped, repeating, left_padded, repeat_padded)
def kvzip_chunk(
    queries: Finite[Tensor, "*batch query_heads queries width"],
    keys: Finite[Tensor, "*batch kv_heads tokens width"],
    repeat_keys: Finite[Tensor, "*batch kv_heads repeat width"],
    index: Whole,
    chunk: Positive = 2000,
    sinks: Whole = 4,
    valid: Bool[Tensor, "*batch tokens"] | None = None,
    repeat_valid: Bool[Tensor, "*batch repeat"] | None = None,
    past: Importance[Tensor, "*batch kv_heads tokens"] | None = None,
) -> Float[Tensor, "*batch kv_heads tokens"]:
    r"""Score one chunk of the context by the queries that repeat it.

    $$s_j = \max_{g} \max_{q} \, \operatorname{softmax}\Bigl( \frac{q
      \, [K_{\text{sinks}}; K_{\text{chunk}}; K_{\text{repeat}, \le q}]^\top}{\sqrt d} \Bigr)_j$$

    Args:
        queries: queries of the repeat input, which asks for the chunk and then repeats it: all of
            them, or a stretch; the last one sits at the last of `repeat_keys`.
        keys: keys of the whole context.
        repeat_keys: keys of the repeat input up to the last query.
        index: which chunk, from 0.
        chunk: length of a chunk; the first begins after the sinks, the last may be shorter.
        sinks: how many tokens at the start of a row every query sees.
        valid: false at padding, on the left of a row.
        repeat_valid: the same for the repeat input.
        past: scores so far: the result is the larger of the two everywhere.

    Returns:
        The scores of each key head in float32, or float64 where an argument is: within the chunk
        in [0, 1], elsewhere those of `past`, or 0. Stretches of queries, handed over one after
        the other, give what all of them give at once.

    Source:
        HubKV-KVzip. From elsewhere: Kim et al.; the paper names KVzip and does not define it
        (E-U43).

    Reading:
        C3, C4, E-U43: the repeat input shares the softmax, so that chunks are part of the
        definition; no other token of the context is seen.
    """
    tokens, count, repeat = keys.shape[-2], queries.shape[-2], repeat_keys.shape[-2]
    repeat_valid = valid_or_all(repeat_valid, repeat_keys)
    exact = widest(queries, keys, repeat_keys)
    past = keys.new_zeros(keys.shape[:-1], dtype=exact) if past is None else past
    scores = past.to(torch.promote_types(exact, past.dtype), copy=True)
    group = queries.shape[-3] // max(1, keys.shape[-3])
    for row, first in row_starts(valid_or_all(valid, keys)):
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
                drawn = weights[h, 0, sinks : sinks + stop - start]
                best = scores[row][h // group, start:stop]
                scores[row][h // group, start:stop] = torch.maximum(best, drawn)
    return scores


def chunk_count(keys: Tensor, chunk: int, sinks: int, valid: Tensor | None) -> int:
    """Return how many chunks the longest row has."""
    lengths = [keys.shape[-2]] if valid is None else valid.sum(-1).flatten().tolist()
    longest = max([0, *lengths]) if keys.shape[:-3].numel() else 0
    return -(-max(0, longest - sinks) // chunk)


def a_repetition_each(
    queries: tuple[Tensor, ...],
    keys: Tensor,
    repeat_keys: tuple[Tensor, ...],
    chunk: int,
    sinks: int,
    valid: Tensor | None,
    repeat_valid: tuple[Tensor, ...] | None,
) -> None:
    """Refuse what is not one repeat input for each chunk, its parts fitting each other."""
    if valid is not None and not may_read_values(valid):
        return  # how many chunks there are is not to be seen
    chunks = chunk_count(keys, chunk, sinks, valid)
    masks = (None,) * chunks if repeat_valid is None else repeat_valid
    given = dict(queries=queries, repeat_keys=repeat_keys, repeat_valid=masks)
    for name, parts in given.items():
        if len(parts) != chunks:
            got = len(parts) or parts
            raise ValueError(f"{name} must have {chunks} entries, one for each chunk, got {got}")
    for index, (asking, echo, mask) in enumerate(zip(queries, repeat_keys, masks, strict=True)):
        grouped(asking.shape[-3], keys.shape[-3])
        repeating(asking, echo, f"[{index}]")
        if mask is not None and mask.shape[-1] != echo.shape[-2]:
            shape = (*mask.shape[:-1], echo.shape[-2])
            said = f"repeat_valid[{index}] must have shape {shape} to fit repeat_keys[{index}]"
            raise ValueError(f"{said}, got {tuple(mask.shape)}")
        false_on_the_left(f"repeat_valid[{index}]", mask)


@requires(wide, left_padded, a_repetition_each)
def kvzip(
    queries: tuple[Finite[Tensor, "*batch query_heads _ width"], ...],
    keys: Finite[Tensor, "*batch kv_heads tokens width"],
    repeat_keys: tuple[Finite[Tensor, "*batch kv_heads _ width"], ...],
    chunk: Positive = 2000,
    sinks: Whole = 4,
    recent: Whole | None = None,
    valid: Bool[Tensor, "*batch tokens"] | None = None,
    repeat_valid: tuple[Bool[Tensor, "*batch _"], ...] | None = None,
) -> Scored:
    r"""Score a whole context by the queries that repeat it, chunk after chunk.

    $$s_j = \max_{g} \max_{q \,\text{repeats}\, c(j)} A^{(g)}_{q, j}, \qquad
      P = \{j < n_{\text{sinks}}\} \cup \{j \ge N - r\}$$

    Args:
        queries: for each chunk, the queries of its repeat input.
        keys: keys of the whole context.
        repeat_keys: for each chunk, the keys of its repeat input.
        chunk: length of a chunk; the first begins after the sinks.
        sinks: how many tokens at the start of a row every query sees, and are protected.
        recent: how many at the end are protected as well; by default $\lfloor 0.02\,N \rfloor$ of
            the row's real tokens.
        valid: false at padding, on the left of a row. Chunks are counted from a row's first real
            token.
        repeat_valid: for each chunk, the same for its repeat input.

    Returns:
        The scores of each key head, in [0, 1], in float32, or float64 where an argument is: 0 at
        the sinks, which belong to no chunk.

    Source:
        HubKV-KVzip. From elsewhere: Kim et al.; the paper names KVzip and does not define it
        (E-U43). The sinks and the window of $P$ are those of A.1 (E-U13).

    Reading:
        C3, C4, E-U13, E-U43: the chunk is part of the definition; recent tokens are protected as
        for FastKVzip.
    """
    scores = keys.new_zeros(keys.shape[:-1], dtype=widen(keys).dtype)
    for index in range(chunk_count(keys, chunk, sinks, valid)):
        mask = None if repeat_valid is None else repeat_valid[index]
        scores = kvzip_chunk(
            queries[index], keys, repeat_keys[index], index, chunk, sinks, valid, mask, scores
        )
    protected = protected_ends(valid_or_all(valid, keys), keys.shape[-3], sinks, recent)
    return Scored(scores, protected)
