"""Mutants of connectivity."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hex/connectivity")
mutant("""
test_tokens_touch_channels_alone_and_both_ways
  one_way_edges: edges lead from tokens to channels only, not back
  - adjacency[tokens:, :tokens] = mask.T
  + adjacency[tokens:, :tokens] = False
vector:two-squares-and-two-alone-are-four-components
  tokens_alone: a channel without an edge is no component
  - range(len(adjacency))
  + range(len(mask))
test_a_graph_hangs_together_where_walks_reach_everything
  one_step: a component contains the vertices at a distance of one edge only
  - frontier += [vertex for vertex in near if vertex not in seen]
  + frontier += []
  nobody_alone: a mask is connected if no row and no column is empty
  - component_count(mask) == 1
  + bool(mask.any(0).all() and mask.any(1).all())
  last_vertex_forgotten: the last vertex is ignored
  - range(len(adjacency))
  + range(len(adjacency) - 1)
""")
