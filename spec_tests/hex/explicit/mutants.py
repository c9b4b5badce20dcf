"""Mutants of explicit graphs."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hex/explicit")
mutant("""
test_the_graph_has_no_short_rings
  every_other_backwards: every second product is reversed, so that two steps may reach one vertex
  - image = (a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h)
  + image = (a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h)[:: 1 if i % 2 else -1]
test_the_graph_looks_the_same_from_every_vertex
  random_in_place_of_explicit: a random regular graph of the same size
  -     return _edges(prime, modulus, _members(modulus, True), _members(modulus, False))
  +     from reference.hex.random_biregular import biadjacency, double_edge_swaps, half_edge_pairing
  +     n = modulus * (modulus**2 - 1) // 2
  +     return biadjacency(double_edge_swaps(half_edge_pairing(n, n, prime + 1), n), n)
""")
