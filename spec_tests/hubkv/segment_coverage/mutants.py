"""Mutants of segments and reference lines."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hubkv/segment_coverage")
mutant("""
vector:segments-of-unequal-width
  segments_of_equal_width: all segments have ⌊n / m⌋ tokens
  - segment = segments * order[..., t, None] // tokens
  + segment = (order[..., t, None] // max(tokens // segments, 1)).clamp(max=segments - 1)
test_gains_sum_to_the_covered_share_in_any_order
  segments_forget: a pick gains if its segment is not that of the pick before
  - touched.scatter_(-1, segment, True)
  + touched = torch.zeros_like(touched).scatter_(-1, segment, True)
test_at_the_length_of_the_paper_no_pick_of_the_spread_is_wasted
  spread_rounds_down: positions are rounded down: 64 picks of 2004 tokens cover 60 segments
  - -(-k * tokens // picks)
  + k * tokens // picks
test_a_random_order_visits_each_position_once
  order_with_replacement: picks are drawn with replacement
  - .permutation(tokens)
  + .randint(0, max(tokens, 1), tokens)
vector:the-frozen-generator
  order_of_another_generator: the order comes from another generator
  - np.random.RandomState(seed)
  + np.random.default_rng(seed)
""")
