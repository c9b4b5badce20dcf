"""Mutants of the whole refinement, and its choices."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("graphkv/refine")
mutant("""
test_a_row_holds_the_heads_of_a_token_side_by_side
  reshaped_heads: tokens side by side instead of heads
  - return vectors.movedim(-3, -2).flatten(-2)
  + return vectors.reshape(vectors.movedim(-3, -2).flatten(-2).shape)
test_every_graph_is_made_of_its_parts
  first_head_scores: the first head's scores for the layer
  - refined.mean(-2)
  + refined[..., 0, :]
  always_per_head: a graph a head, unasked
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
  always_spared: spares sources unasked
  - count, aside, spare_sources)
  + count, aside, True)
  rule_ignored: one rule whatever is asked
  - decay(score, weights, reached, rounds, strength, rule)
  + decay(score, weights, reached, rounds, strength)
  kind_ignored: keys whatever is compared
  - kind=kind, clamp
  + clamp
  one_round_of_decay: one round of decay whatever is asked
  - decay(score, weights, reached, rounds, strength, rule)
  + decay(score, weights, reached, min(1, rounds), strength, rule)
  one_round_of_enhancing: one round of enhancing whatever is asked
  - enhance(score, weights, reached, rounds, strength)
  + enhance(score, weights, reached, min(1, rounds), strength)
  enhancing_at_full_strength: enhances at full strength
  - enhance(score, weights, reached, rounds, strength)
  + enhance(score, weights, reached, rounds)
  first_query_of_the_group: the first query stands for its group
  - group_mean(queries, keys)
  + queries[..., :: queries.shape[-3] // keys.shape[-3], :, :]
vector:a-window-counts-into-the-budget
  window_always_excluded: the window off the budget, unasked
  - window if exclude_window else 0
  + window
test_every_graph_takes_its_own_window_off_the_budget
  window_never_excluded: the window stays in the budget
  - window if exclude_window else 0
  + 0
  fewest_sources_for_all: one number of sources for a whole batch
  - window if exclude_window else 0
  + min(keep, int(protected.sum(-1).max()))
  largest_window_for_all: the largest window of a batch for every graph
  - window if exclude_window else 0
  + int(protected.sum(-1).max()) if exclude_window else 0
test_an_adaptive_source_has_a_neighbour_for_each_thousand_tokens
  never_adapted: as many neighbours in a short input as in a long one
  - if adaptive:
  + if False:
vector:a-window-excluded-from-the-budget
  one_source_beside_the_window: one source where the window comes off the budget
  - source_count(keep, fraction, window if exclude_window else 0)
  + source_count(keep, 1e-9 if exclude_window else fraction)
test_half_precision_is_rounded_once_at_the_end
  rounded_scores: scores are rounded after every round
  -             refined[graph] = decay(score, weights, reached, rounds, strength, rule)
  +             for _ in range(rounds):
  +                 score = decay(score, weights, reached, 1, strength, rule).to(scores.dtype)
  +             refined[graph] = score
""")
