"""Mutants of KVzip."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("scorers/kvzip")
mutant("""
vector:the-best-query-counts
  no_causal_mask: a query sees all of the repeat input
  - blank : repeat - count + q + 1]
  + blank:]
  repeat_keys_unseen: the repeat input is outside the softmax
  - torch.cat([seen, echo], -2)
  + seen
  mean_of_queries: queries are averaged, not maximised
  - torch.maximum(best, drawn)
  + best + drawn / count
vector:only-its-own-chunk-is-seen
  past_lost: scores of earlier chunks are overwritten
  - dtype=exact) if past is None else past
  + dtype=exact)
test_only_the_chunk_gets_scores_and_the_past_is_never_undone
  sinks_in_the_chunk: the first chunk begins at the first token
  - start = first + sinks + index * chunk
  + start = first + index * chunk
test_by_default_a_fiftieth_of_the_real_tokens_is_recent
  recent_of_padded: the recent window is a share of the padded length
  - keys.shape[-3], sinks, recent)
  + keys.shape[-3], sinks,
  +         keys.shape[-2] // 50 if recent is None else recent)
test_sinks_and_recent_tokens_are_protected_by_the_mask_alone
  kvzip_sentinel: protected tokens score 1
  - return Scored(scores, protected)
  + return Scored(scores.masked_fill(protected, 1), protected)
vector:the-best-of-the-group-counts
  mean_of_group: the heads of a group are averaged, not maximised
  - weights[h, 0, sinks : sinks + stop - start]
  + weights.unflatten(0, (-1, group))[h // group, :, 0, sinks : sinks + stop - start].mean(0)
test_scores_agree_with_scalar_loops[4]
  kvzip_heads_in_turn: query head h uses key head h modulo the number of key heads
  - queries[row][:, q, None]
  + queries[row][sorted(range(len(queries[row])), key=lambda h: h % keys.shape[-3]), q, None]
vector:the-last-chunk-may-be-short
  one_chunk: all tokens are one chunk
  - repeat_keys[index], index, chunk,
  + repeat_keys[index], 0, keys.shape[-2] + 1,
""")
