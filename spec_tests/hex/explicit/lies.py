"""Lies about explicit graphs."""

import reference
from spec_tests.mutants.make import mutant


@mutant(
    "lps_mask",
    "a random regular graph of the same size",
    killer="hex/explicit/test_laws.py::test_the_graph_looks_the_same_from_every_vertex",
)
def random_in_place_of_explicit(prime, modulus):
    """Draw it."""
    vertices = modulus * (modulus**2 - 1) // 2
    pairs = reference.half_edge_pairing(vertices, vertices, prime + 1)
    return reference.biadjacency(reference.double_edge_swaps(pairs, vertices), vertices)
