"""Mutants of signals along the graph."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("graphkv/decay")
mutant("""
test_product_is_equation_5_and_sequential_is_algorithm_2
  accumulating_in_place: Algorithm 2 on one array for all rounds
  - lowered = before * (1 - loss)
  + lowered = after * (1 - loss)
  order_matters: the first source counts more
  - loss = strength * widen(weights[..., i, :])
  + loss = strength * widen(weights[..., i, :]) / (1 + (i > 0))
  one_round: runs one round, whatever the number of rounds
  - range(rounds):
  + range(min(rounds, 1)):
            before = after
  overwriting_product: Algorithm 2 overwrites where Equation 5 multiplies
  - lowered = after * (1 - loss)
  + lowered = before * (1 - loss)
vector:figure-as-drawn
  no_sum: the losses of Figure 3 are multiplied
  - lowered = after - before * loss
  + lowered = after * (1 - loss)
vector:losses-beyond-the-score
  bounded_losses: scores stop at 0
  - after = after.to(scores.dtype)
  + after = after.to(scores.dtype).clamp(min=0)
test_no_round_is_the_identity_for_every_signal
  one_round_more: runs one round too many
  - range(rounds):
  + range(rounds + 1):
            before = after
  banished_at_once: evicts even where there is no round
  - range(rounds):
  + range(1):
            for i in range(neighbours
test_one_source_takes_its_edge_off_the_score
  subtracted_edges: a loss is subtracted, not multiplied by the score
  - lowered = after - before * loss
  + lowered = after - loss
  strength_forgotten: the strength is ignored
  - loss = strength * widen
  + loss = widen
test_a_token_that_no_source_reaches_is_untouched
  everybody_reached: every edge counts, not only those to neighbours
  - torch.where(neighbours[..., i, :], lowered, after)
  + lowered
vector:opposite-keys-amplify
  clamped_unasked: negative edges count as 0
  - loss = strength * widen(weights[..., i, :])
  + loss = strength * widen(weights[..., i, :]).clamp(min=0)
test_half_precision_is_rounded_once
  rounded_every_time: scores are rounded after every round
  -         before = after
  +         before = after = after.to(scores.dtype)
test_a_duplicate_key_decays_to_exactly_0
  never_quite_0: a token with the source's key keeps a small score
  - loss = strength * widen(weights[..., i, :])
  + loss = strength * widen(weights[..., i, :]).clamp(max=1 - 1e-6)
test_enhanced_is_at_least_the_score_which_is_at_least_the_decayed
  raising: raises scores instead of lowering them
  - loss = strength
  + loss = -strength
  enhancing_downwards: lowers scores instead of raising them
  - enhanced * (1 + gain)
  + enhanced * (1 - gain)
test_enhancing_is_decaying_along_edges_of_the_other_sign
  last_gain: only the last source that reaches a token counts
  +         before = enhanced
            for i in range(weights.shape[-2]):
                gain = strength * widen(weights[..., i, :])
  -             enhanced = torch.where(neighbours[..., i, :], enhanced * (1 + gain), enhanced)
  +             enhanced = torch.where(neighbours[..., i, :], before * (1 + gain), enhanced)
  added_gains: gains are added, not multiplied
  - enhanced * (1 + gain)
  + enhanced + scores * gain
test_the_evicted_signal_is_minus_infinity_on_exactly_the_neighbours
  finite_banishment: a large negative number instead of minus infinity
  - (neighbours[..., i, :], -torch.inf)
  + (neighbours[..., i, :], torch.finfo(scores.dtype).min)
""")
