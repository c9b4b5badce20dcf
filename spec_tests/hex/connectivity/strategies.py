"""Strategies for masks as graphs."""

from spec_tests.hex.spectrum.strategies import any_mask_or_expander, full

FUNCTIONS = "bipartite_adjacency", "component_count", "is_connected"

INPUTS = dict.fromkeys(FUNCTIONS, any_mask_or_expander())
GOOD = {name: dict(mask=full) for name in FUNCTIONS}
