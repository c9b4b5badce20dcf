"""Vectorised PyTorch bodies: any device, no loops over tokens, heads or queries."""

from optimized.vector.attention import attention, attention_error, attention_weights
from optimized.vector.evict import DenseCache, RaggedCache, evict, stored_bytes
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
from optimized.vector.heavy_hitters import attention_mass, h2o_mask, heavy_hitter_mask, recent_mask
from optimized.vector.hex_block import hex_compress, hex_mask, hex_reconstruct
from optimized.vector.hex_cache import hex_append, hex_prefill, hex_read, hex_recompress
from optimized.vector.hex_study import hex_bytes, hex_preset, hex_size, paper_size, sensitivity
from optimized.vector.hubkv import discount, hub_mask, smd
from optimized.vector.kcvt import dequantise, kcvt, pack_bits, quantise, unpack_bits
from optimized.vector.retain import kept_count, modular_utility, ranking, retain
from optimized.vector.spectrum import (
    is_ramanujan,
    ramanujan_bound,
    second_singular_value,
)
from optimized.vector.store import MaskStore, from_csr, to_csr

__all__ = [
    "attention_weights",
    "attention",
    "attention_error",
    "kept_count",
    "ranking",
    "retain",
    "modular_utility",
    "DenseCache",
    "RaggedCache",
    "evict",
    "stored_bytes",
    "MaskStore",
    "from_csr",
    "to_csr",
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
    "attention_mass",
    "heavy_hitter_mask",
    "recent_mask",
    "h2o_mask",
    "quantise",
    "dequantise",
    "kcvt",
    "pack_bits",
    "unpack_bits",
    "hex_preset",
    "hex_mask",
    "hex_compress",
    "hex_reconstruct",
    "hex_prefill",
    "hex_append",
    "hex_recompress",
    "hex_read",
    "hex_bytes",
    "hex_size",
    "paper_size",
    "sensitivity",
    "discount",
    "hub_mask",
    "smd",
]
