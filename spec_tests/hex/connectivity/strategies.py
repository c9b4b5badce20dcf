"""Masks to take for graphs."""

from spec_tests.hex.spectrum.strategies import full, some_mask

INPUTS = dict(
    bipartite_adjacency=some_mask(),
    component_count=some_mask(),
    is_connected=some_mask(),
)

GOOD = dict(
    bipartite_adjacency=dict(mask=full),
    component_count=dict(mask=full),
    is_connected=dict(mask=full),
)
