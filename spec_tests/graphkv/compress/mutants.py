"""Mutants of GraphKV as a whole."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("graphkv/compress")
mutant("""
vector:what-one-head-protects-is-marked-in-all
  marks_of_each_head: each head marks only the tokens that it protects itself
  - scored.protected.any(-2, keepdim=True)
  + scored.protected
test_what_is_kept_ranks_first_by_the_refined_scores
  strength_of_its_own: decays at strength 1, whatever the settings
  - scored, keep=keep, ratio=ratio, refinement=refinement, queries=queries,
  -         valid=valid,
  + scored, keep=keep, ratio=ratio, refinement=refinement._replace(strength=1.0),
  +         queries=queries, valid=valid,
        )
vector:a-token-protected-by-one-head-is-kept-by-all
  protected_per_head: each head protects its own tokens, though the layer keeps one set
  - if refinement.per_head:
  + if not refinement.per_head:
test_each_layer_and_each_row_of_it_has_a_budget_of_its_own
  first_budget: the first layer's budget is used for all layers
  - keep.reshape(*keep.shape, *[1] * (len(pools) - keep.ndim))
  + keep[:1].reshape(-1, *[1] * (len(pools) - 1))
  another_rows_budget: a row of a layer has the budget of another row
  - keep.reshape(*keep.shape
  + keep.roll(keep.ndim - 1, -1).reshape(*keep.shape
test_an_input_below_a_thousand_tokens_has_no_neighbours
  uncapped: the number of neighbours depends on the length only if the length is given
  - adaptive=length is None
  + adaptive=False
test_each_row_has_neighbours_by_its_own_thousands_without_its_padding
  longest_row: padding counts into the length of a row
  - refinement = refinement._replace(adaptive=length is None)
  + length = scored.scores.shape[-1] if length is None else length
test_each_row_of_hex_has_neighbours_by_its_own_thousands
  evicted_all_the_same: the rest is evicted although HEX must store it
  - queries=queries,
  -         valid=valid, store=store,
  + queries=queries,
  +         valid=valid,
""")
