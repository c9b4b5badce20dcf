"""Mutants of the key analysis."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("graphkv/key_analysis")
mutant("""
test_the_matrix_is_the_graph_with_every_token_a_source
  correlation: keys are centred first
  - return edges(keys, every
  + return edges(keys - keys.mean(-1, keepdim=True), every
test_a_bin_counts_the_pairs_between_its_edges
  both_ways: each pair counts twice
  - histogram = torch.stack
  + histogram = 2 * torch.stack
  positive_bins: bins cover [0, 1]
  - ((pairs + 1) * (bins / 2))
  + (pairs * bins).floor()
test_the_distribution_is_that_of_the_pairs_of_different_tokens
  with_the_diagonal: tokens are paired with themselves
  - offset=1
  + offset=0
test_shifting_the_keys_changes_no_projection
  uncentred: keys are not centred
  - wide[head] - wide[head].mean(0)
  + wide[head]
test_components_vary_less_and_less
  least_variance_first: components are in order of increasing variance
  - .eigenvectors.flip(-1)
  + .eigenvectors
test_an_axis_points_where_its_largest_coordinate_is_positive
  any_sign: the sign of an axis depends on the first token
  - sign = axis[axis.abs().argmax()].sign()
  + sign = 1 if centred[0] @ axis >= 0 else -1
test_table_5_is_reproduced
  heads_of_the_caption: 32 heads by default, as in the caption
  - heads: Positive = 8
  + heads: Positive = 32
  binary_thousands: a K is 1024 tokens
  - return 2 * tokens
  + return 2 * (tokens if tokens % 1000 else tokens // 1000 * 1024)
  keys_alone: values are not counted
  - return 2 * tokens
  + return tokens
""")
