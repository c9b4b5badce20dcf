"""Mutants of explicit graphs, coverings and sub-tiles, of expansion and sparse rows."""

import torch

import reference
from spec_tests.mutants.make import mutant


@mutant(
    "cheeger_constant",
    "the boundary of a set counts its edges, not its vertices",
    killer="hex/test_expansion.py::test_rings_and_complete_graphs_have_the_known_constants",
)
def edge_boundary(adjacency):
    """Divide the conductance's cut by the size."""
    return reference.conductance(adjacency) * int(adjacency[0].sum())


@mutant(
    "lift",
    "every edge is replaced by the same permutation: copies of the base side by side",
    killer="hex/test_covering.py::test_an_edge_follows_its_permutation",
)
def parallel_copies(mask, permutations):
    """Use the identity for every edge."""
    identity = torch.arange(permutations.shape[1]).expand_as(permutations)
    return reference.lift(mask, identity.contiguous())


@mutant(
    "ramanujan_lift",
    "the base is copied, which falls apart",
    killer="hex/test_covering.py::test_an_accepted_covering_is_ramanujan",
)
def copies_are_a_covering(mask, sheets=2, seed=0):
    """Return the trivial covering."""
    identity = torch.arange(sheets).repeat(int(mask.sum()), 1)
    return reference.Expander(reference.lift(mask, identity), 1)


@mutant(
    "lps_mask",
    "a random regular graph of the same size",
    killer="hex/test_explicit.py::test_the_graph_looks_the_same_from_every_vertex",
)
def random_in_place_of_explicit(prime, modulus):
    """Draw it."""
    vertices = modulus * (modulus**2 - 1) // 2
    pairs = reference.half_edge_pairing(vertices, vertices, prime + 1)
    return reference.biadjacency(reference.double_edge_swaps(pairs, vertices), vertices)


@mutant(
    "subtile_permutations",
    "the carry of the multiplication is not folded back: no shift",
    killer="test_vectors.py::test_vector[expander-a-code-unfolds",
)
def affine_permutation(codes, width=128):
    """Leave the exclusive or out."""
    y = (codes[..., None] & 255) * torch.arange(width) + (codes[..., None] >> 8 & 255)
    return ((codes[..., None] >> 16 & 255) * y + (codes[..., None] >> 24)) % width


@mutant(
    "to_csr",
    "rows without entries are skipped",
    killer="hex/test_csr.py::test_rows_hold_their_columns_in_order",
)
def skip_empty_rows(mask):
    """Keep the rows that have something."""
    return reference.to_csr(mask[mask.any(1)] if mask.numel() else mask)
