"""Mutants of GraphKV's refinement, and of its options."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("graphkv/refine")
mutant("""
test_a_row_holds_the_heads_of_a_token_side_by_side
  reshaped_heads: a row holds adjacent tokens of a head, not the heads of a token
  - return vectors.movedim(-3, -2).flatten(-2)
  + return vectors.reshape(vectors.movedim(-3, -2).flatten(-2).shape)
test_every_graph_is_made_of_its_parts
  first_head_scores: a layer has the scores of its first head
  - refined.mean(-2)
  + refined[..., 0, :]
  always_per_head: each head has its own graph, whatever `per_head` is
  +     per_head = True
        if not scores.numel():
  protected_decay: protected tokens decay
  - if protected is None:
  + if True:
  protected_by_all_heads: a layer's token is protected only where all heads protect it
  - refined.mean(-2), protected.any(-2)
  + refined.mean(-2), protected.all(-2)
  sentinel_scores: a protected token's score ranks among the sources
  - min(sources, content), aside)
  + min(sources, content))
  always_spared: sources are always spared
  - count, aside, spare_sources)
  + count, aside, True)
  rule_ignored: the rule is ignored
  - decay(score, weights, reached, rounds, strength, rule)
  + decay(score, weights, reached, rounds, strength)
  kind_ignored: keys are compared, whatever the kind
  - kind=kind, clamp
  + clamp
  one_round_of_decay: decay runs one round, whatever the number of rounds
  - decay(score, weights, reached, rounds, strength, rule)
  + decay(score, weights, reached, min(1, rounds), strength, rule)
  one_round_of_enhancing: enhancing runs one round, whatever the number of rounds
  - enhance(score, weights, reached, rounds, strength)
  + enhance(score, weights, reached, min(1, rounds), strength)
  enhancing_at_full_strength: enhancing ignores the strength
  - enhance(score, weights, reached, rounds, strength)
  + enhance(score, weights, reached, rounds)
  first_query_of_the_group: the first query of a group is used instead of the mean
  - group_mean(queries, keys)
  + queries[..., :: queries.shape[-3] // keys.shape[-3], :, :]
vector:a-window-counts-into-the-budget
  window_always_excluded: the window is always subtracted from the budget
  - window if exclude_window else 0
  + window
test_every_graph_takes_its_own_window_off_the_budget
  window_never_excluded: the window is not subtracted from the budget
  - window if exclude_window else 0
  + 0
  fewest_sources_for_all: all graphs of a batch have the same number of sources
  - window if exclude_window else 0
  + min(keep, int(protected.sum(-1).max()))
  largest_window_for_all: all graphs subtract the largest window of the batch
  - window if exclude_window else 0
  + int(protected.sum(-1).max()) if exclude_window else 0
test_an_adaptive_source_has_a_neighbour_for_each_thousand_tokens
  never_adapted: a short input has as many neighbours as a long one
  - if adaptive:
  + if False:
vector:a-window-excluded-from-the-budget
  one_source_beside_the_window: only one source where the window is excluded
  - source_count(keep, fraction, window if exclude_window else 0)
  + source_count(keep, 1e-9 if exclude_window else fraction)
test_half_precision_is_rounded_once_at_the_end
  rounded_scores: scores are rounded after every round
  -             refined[graph] = decay(score, weights, reached, rounds, strength, rule)
  +             for _ in range(rounds):
  +                 score = decay(score, weights, reached, 1, strength, rule).to(scores.dtype)
  +             refined[graph] = score
""")
