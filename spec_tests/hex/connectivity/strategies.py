"""Strategies for masks as graphs."""

from spec_tests.hex.spectrum.strategies import any_mask_or_expander, full

INPUTS = dict(
    bipartite_adjacency=any_mask_or_expander(),
    component_count=any_mask_or_expander(),
    is_connected=any_mask_or_expander(),
)

GOOD = dict(
    bipartite_adjacency=dict(mask=full),
    component_count=dict(mask=full),
    is_connected=dict(mask=full),
)
