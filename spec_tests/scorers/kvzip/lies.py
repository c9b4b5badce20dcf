"""Lies about KVzip."""

import torch

import reference
from spec_tests.mutants.make import in_turn, lies, mutant

lie = lies("scorers/kvzip")

lie(
    "no_causal_mask",
    "a query sees all of the repeat input",
    "blank : repeat - count + q + 1]",
    "blank:]",
    "vector:the-best-query-counts",
)
lie(
    "repeat_keys_unseen",
    "the repeat input is outside the softmax",
    "torch.cat([seen, echo], -2)",
    "seen",
    "vector:the-best-query-counts",
)
lie(
    "past_lost",
    "the past is overwritten",
    "past.to(torch.promote_types(exact, past.dtype), copy=True)",
    "torch.zeros_like(past)",
    "vector:only-its-own-chunk-is-seen",
)
lie(
    "sinks_in_the_chunk",
    "the first chunk begins at the first token",
    "start = first + sinks + index * chunk",
    "start = first + index * chunk",
    "test_only_the_chunk_gets_scores_and_the_past_is_never_undone",
)
lie(
    "recent_of_padded",
    "the recent window is a share of the padded length",
    "keys.shape[-3], sinks, recent)",
    "keys.shape[-3], sinks,\n        keys.shape[-2] // 50 if recent is None else recent)",
    "test_by_default_a_fiftieth_of_the_real_tokens_is_recent",
)
lie(
    "kvzip_sentinel",
    "protected tokens score 1",
    "return Scored(scores, protected)",
    "return Scored(scores.masked_fill(protected, 1), protected)",
    "test_sinks_and_recent_tokens_are_protected_by_the_mask_alone",
)


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
