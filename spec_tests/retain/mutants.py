"""Mutants of selection."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("retain")
mutant("""
vector:nine-tenths-of-a-hundred-leaves-ten
  binary_count: the count is computed in binary
  - return (1 - Fraction(str(ratio))) * pool // 1
  + return int(pool * (1 - ratio))
test_the_budget_is_the_exact_floor_of_what_is_not_removed
  rounded_count: the count is rounded to the nearest
  - return (1 - Fraction(str(ratio))) * pool // 1
  + return round(pool * (1 - ratio))
test_pools_are_filled_in_the_total_order
  protected_entries_compete: protected entries compete with the others
  - protected_first = torch.cat([order[shield[order]], order[~shield[order]]])
  + protected_first = order
  strict_threshold: only scores above the threshold are kept, so that ties at it are lost
  -         kept[pool][protected_first[: budgets[pool]]] = True
  +         chosen, row = protected_first[: budgets[pool]], pools[pool]
  +         kept[pool][chosen[row[chosen] > row[chosen[-1:]]]] = True
  inclusive_threshold: all scores at the threshold are kept, so that ties exceed the budget
  -         kept[pool][protected_first[: budgets[pool]]] = True
  +         for entry in protected_first[: budgets[pool]]:
  +             kept[pool][pools[pool] == pools[pool][entry]] = True
  last_of_a_tie: of equal scores the highest index is kept
  - best_first = ranking(pools)
  + best_first = pools.shape[-1] - 1 - ranking(pools.flip(-1))
  batch_rows_mixed: all batch rows share one pool in the scope of the model
  +     if scope == "model" and scores.ndim > 3 and isinstance(keep, int):
  +         layers, shields = scores.flatten(0, -3), protected.flatten(0, -3)
  +         keep *= scores.shape[1:-2].numel()
  +         return retain(layers, shields, keep=keep, scope="model").view(scores.shape)
        pools, shields = pooled(scores, scope)
  positions_before_heads: ties of a model go by position before layer and head
  -     best_first = ranking(pools)
  +     places = torch.arange(pools.shape[-1]).view(-1, scores.shape[-1]).T.flatten()
  +     best_first = places[ranking(pools[..., places])]
vector:protected-entries-take-their-share-of-the-budget
  protected_on_top: protected entries are added to the budget
  -         kept[pool][protected_first[: budgets[pool]]] = True
  +         kept[pool][order[: budgets[pool]]] = True
  +         kept[pool][shield] = True
vector:a-protected-entry-beats-any-score
  protected_by_sentinel: protected entries get a score of 1, as if it were the maximum
  - best_first = ranking(pools)
  + best_first, shields = ranking(pools.masked_fill(shields, 1.0)), shields & False
vector:evicted-entries-fill-an-empty-budget
  evicted_is_gone: evicted entries are never kept, even if the budget has room
  - return unpooled(kept, scores.shape, scope)
  + return unpooled(kept, scores.shape, scope) & (scores > -torch.inf)
vector:nothing-kept-is-nothing
  trailing_slice_of_nothing: a budget of 0 keeps everything
  - protected_first[: budgets[pool]]
  + protected_first.flip(0)[-budgets[pool] :]
test_top_k_maximises_the_modular_utility
  utility_as_a_mean: the utility is a mean over the kept entries
  -     return utility
  +     return utility / kept.sum(-1).clamp(min=1)
vector:both-zeros-tie
  negative_zero_is_less: -0.0 ranks below 0.0
  -     return scores.argsort(dim=-1, descending=True, stable=True)
  +     order = torch.signbit(scores).argsort(dim=-1, stable=True)
  +     ranked = scores.gather(-1, order).argsort(dim=-1, descending=True, stable=True)
  +     return order.gather(-1, ranked)
vector:a-layer-is-one-pool
  layer_split_evenly: each head of a layer gets the same budget
  +     if scope == "layer" and isinstance(keep, int):
  +         return retain(scores, protected, keep=keep // scores.shape[-2])
        pools, shields = pooled(scores, scope)
test_a_ranking_visits_every_position_best_first_and_ties_in_order
  ranked_in_half_precision: scores are ranked in bfloat16
  - return scores.argsort(
  + return scores.bfloat16().argsort(
""")
