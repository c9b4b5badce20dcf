"""Vectorised PyTorch bodies: any device, no loops over tokens, heads or queries."""

from optimized.vector.expander import (
    biadjacency,
    biregular_degrees,
    double_edge_swaps,
    expander_mask,
    half_edge_pairing,
    random_expander,
)
from optimized.vector.expansion import (
    bipartite_adjacency,
    cheeger_constant,
    component_count,
    conductance,
    is_connected,
    spectral_gap,
    vertex_expansion,
)
from optimized.vector.explicit import (
    lift,
    lps_graph,
    lps_mask,
    new_singular_value,
    ramanujan_lift,
    subtile_codes,
    subtile_expander,
    subtile_mask,
    subtile_permutations,
)
from optimized.vector.hubkv import discount, hub_mask, smd
from optimized.vector.spectrum import (
    is_ramanujan,
    ramanujan_bound,
    second_singular_value,
)

__all__ = [
    "biadjacency",
    "bipartite_adjacency",
    "biregular_degrees",
    "cheeger_constant",
    "component_count",
    "conductance",
    "double_edge_swaps",
    "expander_mask",
    "half_edge_pairing",
    "is_connected",
    "is_ramanujan",
    "lift",
    "lps_graph",
    "lps_mask",
    "new_singular_value",
    "ramanujan_bound",
    "ramanujan_lift",
    "random_expander",
    "second_singular_value",
    "spectral_gap",
    "subtile_codes",
    "subtile_expander",
    "subtile_mask",
    "subtile_permutations",
    "vertex_expansion",
    "discount",
    "hub_mask",
    "smd",
]
