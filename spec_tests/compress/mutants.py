"""Mutants of whole compressors."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("compress")
mutant("""
vector:what-is-marked-is-no-padding
  padding_is_walked_through: the loop over a row starts at its padding
  - start = 0 if valid is None else int((~valid[number]).sum())
  + start = 0
vector:padding-does-not-win-where-all-scores-are-zero
  padding_competes: the mask is ignored in the selection
  - queries=queries, valid=valid
  + queries=queries, valid=None
vector:padding-is-nobodys-neighbour
  padding_refined: padding is refined along with the content
  - refined = refine(row, refinement, keep=total // max(1, heads), ratio=removed, **compared)
  + row, compared = (
  +             Scored(*(x[index[:-1]] for x in scored)),
  +             {name: x[index[:-1]] for name, x in vectors.items()},
  +         )
  +         keep_each = total // max(1, heads)
  +         refined = refine(row, refinement, keep=keep_each, ratio=removed, **compared)
  +         refined = refined[..., index[-1]]
test_every_pool_keeps_its_budget_of_real_entries
  padded_length: the ratio is taken of the padded length
  - budgets = row_budgets(keep, ratio, number, pools)
  + padded = torch.nn.functional.pad(pools, (index[-1].start, 0))
  +         budgets = row_budgets(keep, ratio, number, padded).clamp(max=pools.shape[-1])
test_a_graph_compares_the_vectors_of_its_kind
  keys_for_queries: a graph of queries compares keys
  - ["queries"] = queries
  + ["queries"] = keys
test_without_padding_it_is_three_calls
  raw_ranking: the refinement is ignored: the best raw scores stay
  - retain(refined, shield
  + retain(row.scores, shield
test_nothing_of_the_cache_stays_alive
  a_view: the keys are a view that keeps all of its parent in memory
  -         return evict(keys, values, select(keys, values, scored, **settings))
  +         left = evict(keys, values, select(keys, values, scored, **settings))
  +         whole = torch.cat([left.keys.flatten(), keys.flatten()])
  +         return left._replace(keys=whole[: left.keys.numel()].view(left.keys.shape))
vector:heads-are-summed-before-one-set-is-chosen
  best_of_any_head: HEX takes the largest score of any head instead of the sum
  - refined.sum(-2
  + refined.amax(-2
test_heavy_hitters_stand_beside_protected_tokens_and_the_window
  unprotected_in_hex: protected tokens are not kept exactly inside HEX
  - scored.protected[..., :span].any(-2, keepdim=True)
  + scored.protected[..., :span].any(-2, keepdim=True) & False
test_padding_of_whole_blocks_changes_nothing_that_is_stored
  padding_in_the_range: padding stretches the range of the channels in HEX
  -     return hex_store(keys, values, scored.scores, exact, valid, store)
  +     there = exact.new_ones(()) if valid is None else valid[..., None, :, None]
  +     blank = keys.where(there, -100.0)
  +     return hex_store(blank, values, scored.scores, exact, None, store)
hubkv/compress/test_laws.py::test_each_layer_with_a_budget_of_its_own_has_a_gate_of_its_own
  one_gate_for_all_layers: one gate ratio for all layers, although each layer has its own budget
  - 1 - total / max(1, shield.numel()) if
  + 1 - float(torch.as_tensor(keep).double().mean() / max(1, shield.shape[-1])) if
""")
