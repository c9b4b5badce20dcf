"""Mutants of sources, edges and neighbours."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("graphkv/graph")
mutant("""
vector:shares-are-decimal
  binary_share: the share is computed in binary
  - int(Fraction(str(fraction)) * (keep - window))
  + int(fraction * (keep - window))
vector:a-budget-of-512-has-153-sources
  nearest_source_count: the share is rounded to the nearest
  - int(Fraction(str(fraction)) * (keep - window))
  + round(Fraction(str(fraction)) * (keep - window))
vector:a-window-comes-off-the-budget
  window_ignored: the window is not subtracted from the budget
  - int(Fraction(str(fraction)) * (keep - window))
  + int(Fraction(str(fraction)) * keep)
test_sources_are_the_share_of_the_budget_rounded_down
  no_source_at_all: a small budget has no source
  - return max(1, int(
  + return max(0, int(
test_sources_are_the_best_content_tokens_in_order_the_first_of_equals_first
  last_of_equal_scores: the last of equal scores comes first
  - return scores.sort(
  + return scores.shape[-1] - 1 - scores.flip(-1).sort(
  sources_by_half_precision: scores are ranked in bfloat16
  - return scores.sort(
  + return scores.bfloat16().sort(
  protected_sources: protected tokens are sources
  - scores = scores.masked_fill(protected, -torch.inf)
  + pass
test_the_graph_is_that_of_algorithm_1
  inner_product: inner products are not divided by lengths
  - torch.where(lengths > 0, inner / lengths, 0).clamp(-1, 1)
  + inner
  like_everything: the cosine of a vector of length 0 is 1
  - inner / lengths, 0)
  + inner / lengths, 1)
  cosine_distance: 1 minus the cosine, a distance, instead of the cosine
  - torch.where(lengths > 0, inner / lengths, 0).clamp(-1, 1)
  + torch.where(lengths > 0, 1 - (inner / lengths).clamp(-1, 1), 0)
test_a_scaled_key_has_the_same_edges
  half_precision_cosine: the cosine is rounded to half precision
  - inner / lengths, 0)
  + inner / lengths, 0).bfloat16()
test_no_edge_leaves_the_interval_from_minus_1_to_1
  half_lengths: lengths are rounded to half precision, and cosines are not clamped
  - torch.where(lengths > 0, inner / lengths, 0).clamp(-1, 1)
  + torch.where(lengths > 0, inner / lengths.bfloat16(), 0)
test_each_kind_compares_the_vectors_it_names_source_first
  backward_edges: the vectors of source and token are exchanged
  - start, end = vectors
  + end, start = vectors
test_grouped_queries_count_as_their_mean
  first_of_the_group: the first query of a group is used instead of the mean
  - (keys.shape[-3], -1)).mean(-3)
  + (keys.shape[-3], -1)).select(-3, 0)
vector:a-key-head-has-consecutive-queries
  queries_in_turn: query heads are dealt out to the key heads in turn
  - (keys.shape[-3], -1)).mean(-3)
  + (-1, keys.shape[-3])).mean(-4)
test_clamping_replaces_negative_edges_by_0
  folded_edges: negative edges become positive instead of 0
  - weights.clamp(min=0) if clamp
  + weights.abs() if clamp
vector:eight-of-64-neighbours-at-8000-tokens
  neighbours_by_tokens: one neighbour for each token, not for each thousand tokens
  - return min(predefined, length // 1000)
  + return min(predefined, length)
vector:a-thousand-begun-does-not-count
  fixed_neighbour_count: the number of neighbours does not depend on the length
  - return min(predefined, length // 1000)
  + return predefined
vector:no-neighbour-at-500-tokens
  one_neighbour_at_least: a short input has one neighbour, not none
  - return min(predefined, length // 1000)
  + return min(predefined, max(1, length // 1000))
test_each_full_thousand_of_tokens_adds_a_neighbour_up_to_those_set_beforehand
  nearest_thousand: thousands of tokens are rounded to the nearest
  - return min(predefined, length // 1000)
  + return min(predefined, round(length / 1000))
test_neighbours_are_at_the_strongest_edges_the_first_of_equals_first
  neighbours_by_half_precision: edges are ranked in bfloat16
  - best = ranked.sort(
  + best = ranked.bfloat16().sort(
  own_neighbours: a source can be its own neighbour
  - allowed & (tokens != sources[..., i, None])
  + allowed
  protected_neighbours: protected tokens can be neighbours
  - allowed = ~protected
  + pass
  unspared_sources: sources can be neighbours although they are spared
  - if spare_sources:
  + if False:
  last_of_equal_edges: of equal edges the last is chosen
  - best = ranked.sort(
  + best = ranked.shape[-1] - 1 - ranked.flip(-1).sort(
  neighbours_by_threshold: every edge that is at least the m-th strongest is chosen
  - torch.zeros_like(candidates).scatter(-1, best, True)
  + (ranked >= ranked.gather(-1, best).amin(-1, keepdim=True)) if count else candidates & False
""")
