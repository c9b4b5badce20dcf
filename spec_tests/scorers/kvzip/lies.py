"""Lies about KVzip."""

import torch

import reference
from spec_tests.mutants.make import in_turn, mutant


def query_by_query(queries, keys, repeat_keys, index, chunk, sinks, valid, repeat_valid, change):
    """Return each query's scores of a chunk, with the queries and keys of its turn changed."""
    count, repeat = queries.shape[-2], repeat_keys.shape[-2]
    found = [reference.kvzip_chunk(queries[..., :0, :], keys, repeat_keys, index, chunk, sinks)]
    for q in range(count):
        seen = change(repeat - count + q + 1)
        mask = None if repeat_valid is None else repeat_valid[..., :seen].contiguous()
        found.append(
            reference.kvzip_chunk(
                queries[..., q : q + 1, :],
                keys,
                repeat_keys[..., :seen, :],
                index,
                chunk,
                sinks,
                valid,
                mask,
            )
        )
    return torch.stack(found)


def later(scores, past):
    """Return the larger of scores and past."""
    return scores if past is None else torch.maximum(scores, past)


@mutant(
    "kvzip_chunk",
    "a query sees all of the repeat input",
    killer="test_vectors.py::test_vector[kvzip-the-best-query-counts]",
)
def no_causal_mask(
    queries, keys, repeat_keys, index, chunk=2000, sinks=4, valid=None, repeat_valid=None, past=None
):
    """Forget the mask inside the repeat input."""
    everything = repeat_keys.shape[-2]
    x = (queries, keys, repeat_keys, index, chunk, sinks, valid, repeat_valid)
    return later(query_by_query(*x, lambda _: everything).amax(0), past)


@mutant(
    "kvzip_chunk",
    "queries are averaged",
    killer="test_vectors.py::test_vector[kvzip-the-best-query-counts]",
)
def mean_of_queries(
    queries, keys, repeat_keys, index, chunk=2000, sinks=4, valid=None, repeat_valid=None, past=None
):
    """Take the mean where the maximum counts."""
    x = (queries, keys, repeat_keys, index, chunk, sinks, valid, repeat_valid)
    found = query_by_query(*x, lambda seen: seen)[1:]
    return later(found.mean(0) if len(found) else reference.kvzip_chunk(*x), past)


@mutant(
    "kvzip_chunk",
    "the group is averaged",
    killer="test_vectors.py::test_vector[kvzip-the-best-of-the-group-counts]",
)
def mean_of_group(
    queries, keys, repeat_keys, index, chunk=2000, sinks=4, valid=None, repeat_valid=None, past=None
):
    """Score each query head of the group alone and take the mean."""
    group = queries.shape[-3] // max(1, keys.shape[-3])
    rest = (keys, repeat_keys, index, chunk, sinks, valid, repeat_valid)
    parts = [reference.kvzip_chunk(queries[..., g::group, :, :], *rest) for g in range(group)]
    return later(torch.stack(parts).mean(0), past)


@mutant(
    "kvzip",
    "query heads are dealt out to key heads in turn",
    killer="scorers/kvzip/test_laws.py::test_scores_agree_with_scalar_loops[4]",
)
def kvzip_heads_in_turn(
    queries, keys, repeat_keys, chunk=2000, sinks=4, recent=None, valid=None, repeat_valid=None
):
    """Take a head's remainder where its quotient counts."""
    turned = tuple(in_turn(asking, keys.shape[-3]) for asking in queries)
    rest = (chunk, sinks, recent, valid, repeat_valid)
    return reference.kvzip(turned, keys, repeat_keys, *rest)


@mutant(
    "kvzip_chunk",
    "the repeat input is outside the softmax",
    killer="test_vectors.py::test_vector[kvzip-the-best-query-counts]",
)
def repeat_keys_unseen(
    queries, keys, repeat_keys, index, chunk=2000, sinks=4, valid=None, repeat_valid=None, past=None
):
    """Divide by the weight that the context draws."""
    if valid is not None or repeat_valid is not None or not queries.numel():
        x = (keys, repeat_keys, index, chunk, sinks, valid, repeat_valid, past)
        return reference.kvzip_chunk(queries, *x)
    start = sinks + index * chunk
    stop = min(keys.shape[-2], start + chunk)
    scores = torch.zeros_like(keys[..., 0], dtype=torch.promote_types(keys.dtype, torch.float32))
    if start < stop:
        seen = torch.cat([keys[..., :sinks, :], keys[..., start:stop, :]], -2)
        weights = reference.attention_weights(queries, seen, causal=False)[..., sinks:].amax(-2)
        grouped = weights.unflatten(-2, (keys.shape[-3], -1)).amax(-2)
        scores[..., start:stop] = grouped
    return later(scores, past)


@mutant(
    "kvzip_chunk",
    "the past is overwritten",
    killer="test_vectors.py::test_vector[kvzip-only-its-own-chunk-is-seen]",
)
def past_lost(
    queries, keys, repeat_keys, index, chunk=2000, sinks=4, valid=None, repeat_valid=None, past=None
):
    """Start from zero."""
    rest = (index, chunk, sinks, valid, repeat_valid)
    return reference.kvzip_chunk(queries, keys, repeat_keys, *rest)


@mutant(
    "kvzip_chunk",
    "the first chunk begins at the first token",
    killer="scorers/kvzip/test_laws.py::test_only_the_chunk_gets_scores_and_the_past_is_never_undone",
)
def sinks_in_the_chunk(
    queries, keys, repeat_keys, index, chunk=2000, sinks=4, valid=None, repeat_valid=None, past=None
):
    """Know no sinks."""
    rest = (index, chunk, 0, valid, repeat_valid, past)
    return reference.kvzip_chunk(queries, keys, repeat_keys, *rest)


@mutant(
    "kvzip",
    "the recent window is a share of the padded length",
    killer="scorers/kvzip/test_laws.py::test_by_default_a_fiftieth_of_the_real_tokens_is_recent",
)
def recent_of_padded(
    queries, keys, repeat_keys, chunk=2000, sinks=4, recent=None, valid=None, repeat_valid=None
):
    """Count padding."""
    recent = keys.shape[-2] // 50 if recent is None else recent
    rest = (chunk, sinks, recent, valid, repeat_valid)
    return reference.kvzip(queries, keys, repeat_keys, *rest)


@mutant(
    "kvzip",
    "protected tokens score 1",
    killer="scorers/kvzip/test_laws.py::test_sinks_and_recent_tokens_are_protected_by_the_mask_alone",
)
def kvzip_sentinel(
    queries, keys, repeat_keys, chunk=2000, sinks=4, recent=None, valid=None, repeat_valid=None
):
    """Write a sentinel into the scores."""
    rest = (chunk, sinks, recent, valid, repeat_valid)
    scored = reference.kvzip(queries, keys, repeat_keys, *rest)
    return scored._replace(scores=scored.scores.masked_fill(scored.protected, 1.0))


@mutant(
    "kvzip",
    "there is one chunk",
    killer="test_vectors.py::test_vector[kvzip-the-last-chunk-may-be-short]",
)
def one_chunk(
    queries, keys, repeat_keys, chunk=2000, sinks=4, recent=None, valid=None, repeat_valid=None
):
    """Let every repeat input see the whole context."""
    rest = (keys.shape[-2] + 1, sinks, valid)
    scored = reference.kvzip(queries, keys, repeat_keys, chunk, sinks, recent, valid, repeat_valid)
    scores = torch.zeros_like(scored.scores)
    for index, (asking, echo) in enumerate(zip(queries, repeat_keys, strict=True)):
        mask = None if repeat_valid is None else repeat_valid[index]
        scores = reference.kvzip_chunk(asking, keys, echo, 0, *rest, mask, scores)
    return scored._replace(scores=scores)
