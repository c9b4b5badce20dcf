"""Mutants of expansion and the spectral gap."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hex/expansion")
mutant("""
test_rings_and_complete_graphs_have_the_known_constants
  edge_boundary: the boundary of a set counts its edges, not its vertices
  - boundary = [v for v in outside if bool((adjacency[v] & subset).any())]
  + boundary = adjacency[outside][:, subset].nonzero()
vector:one-edge-has-no-gap-as-bipartite
  first_distance_alone: the distance from the last eigenvalue is ignored
  - return min(abs(values[0] - values[1]),
  + return abs(values[0] - values[1]) if not two_sided else min(abs(values[0] - values[1]),
test_the_gap_is_the_smaller_of_two_distances_from_the_first_eigenvalue
  always_two_sided: the gap is always two-sided
  - (abs(last) if two_sided else last)
  + abs(last)
""")
