"""The three papers, equation by equation, in plain PyTorch.

Read in this order: `attention`, `retain`, `evict`, then one folder per paper.
`__all__` is the contract: `optimized` and every implementation under test offer these names.
"""

from reference.hex.covering import lift, new_singular_value, ramanujan_lift
from reference.hex.expander import (
    Degrees,
    Expander,
    biregular_degrees,
    expander_mask,
    random_expander,
)
from reference.hex.expansion import (
    bipartite_adjacency,
    cheeger_constant,
    component_count,
    conductance,
    is_connected,
    spectral_gap,
    vertex_expansion,
)
from reference.hex.explicit import lps_graph, lps_mask
from reference.hex.pairing import biadjacency, double_edge_swaps, half_edge_pairing
from reference.hex.spectrum import is_ramanujan, ramanujan_bound, second_singular_value
from reference.hex.subtile import (
    SubtileExpander,
    subtile_codes,
    subtile_expander,
    subtile_mask,
    subtile_permutations,
)
from reference.hubkv.discount import discount, hub_mask, smd

__all__ = [
    # reference.hex.pairing
    "half_edge_pairing",
    "double_edge_swaps",
    "biadjacency",
    # reference.hex.spectrum
    "ramanujan_bound",
    "second_singular_value",
    "is_ramanujan",
    # reference.hex.expansion
    "bipartite_adjacency",
    "component_count",
    "is_connected",
    "spectral_gap",
    "vertex_expansion",
    "cheeger_constant",
    "conductance",
    # reference.hex.expander
    "Degrees",
    "Expander",
    "biregular_degrees",
    "random_expander",
    "expander_mask",
    # reference.hex.subtile
    "SubtileExpander",
    "subtile_codes",
    "subtile_permutations",
    "subtile_mask",
    "subtile_expander",
    # reference.hex.explicit
    "lps_mask",
    "lps_graph",
    # reference.hex.covering
    "lift",
    "new_singular_value",
    "ramanujan_lift",
    # reference.hubkv.discount
    "hub_mask",
    "discount",
    "smd",
]
