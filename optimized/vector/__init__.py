"""Vectorised PyTorch bodies: any device, no loops over tokens, heads or queries."""

from optimized.vector._graphkv_keys import (
    cosine_distribution,
    cosine_matrix,
    hide_needle,
    kv_bytes,
    needle_recall,
    principal_components,
)
from optimized.vector._graphkv_refine import concatenate_heads, graphkv_refine
from optimized.vector.attention import attention, attention_error, attention_weights
from optimized.vector.base_scorers import (
    h2o,
    h2o_mass,
    knorm,
    pyramidkv_budgets,
    snapkv,
    streaming_llm,
)
from optimized.vector.cake import cake, cake_budgets, cake_cascade, cake_preference
from optimized.vector.compress import compress
from optimized.vector.coverage import (
    coverage,
    coverage_weights,
    greedy,
    lazy_greedy,
    marginal_gain,
    overlap,
    window_kernel,
)
from optimized.vector.decoding import decoding_append, decoding_read, decoding_start
from optimized.vector.evict import DenseCache, RaggedCache, evict, stored_bytes
from optimized.vector.expander import (
    biadjacency,
    biregular_degrees,
    connecting_swaps,
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
from optimized.vector.expected_attention import (
    expected_attention,
    mean_rotation,
    query_statistics,
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
from optimized.vector.fastkvzip import fastkvzip
from optimized.vector.gear import gear_compress, gear_reconstruct, low_rank, outlier_mask
from optimized.vector.gear_cache import (
    gear_append,
    gear_prefill,
    gear_read,
    gear_size,
    kivi_share,
    kivi_size,
    quantizer_bytes,
    quantizer_sizes,
)
from optimized.vector.graphkv import (
    banish,
    decay,
    edges,
    enhance,
    neighbour_count,
    neighbours,
    source_count,
    source_tokens,
)
from optimized.vector.hex.cache import hex_append, hex_prefill, hex_read, hex_recompress
from optimized.vector.hex.compress import hex_compress, hex_mask, hex_reconstruct
from optimized.vector.hex.heavy_hitters import (
    attention_mass,
    h2o_mask,
    heavy_hitter_mask,
    recent_mask,
)
from optimized.vector.hex.kcvt import dequantise, kcvt, quantise
from optimized.vector.hex.packing import pack_bits, unpack_bits
from optimized.vector.hex.sensitivity import sensitivity
from optimized.vector.hubkv import discount, hub_mask, smd
from optimized.vector.hubkv_budgets import head_budgets
from optimized.vector.hubkv_calibration import head_weights, selectivity
from optimized.vector.hubkv_refine import hubkv_refine, ungated_refine
from optimized.vector.kivi import kivi_append, kivi_prefill, kivi_read
from optimized.vector.kvzip import kvzip, kvzip_chunk
from optimized.vector.locality import (
    attention_density,
    autocorrelation,
    distance_profile,
    nms,
    retained_chains,
    segment_coverage,
    uniform_spread,
)
from optimized.vector.refinement import refine
from optimized.vector.retain import kept_count, modular_utility, ranking, retain
from optimized.vector.spectrum import is_ramanujan, ramanujan_bound, second_singular_value
from optimized.vector.store import MaskStore, from_csr, to_csr
from optimized.vector.systems import graphkv_compress, hubkv_compress
from reference.hex.presets import hex_preset
from reference.hex.size import hex_bytes, hex_size, paper_size
from reference.hubkv.calibration import calibrate
from reference.hubkv.gate import gate
from reference.hubkv.kernels import gaussian_kernel
from reference.hubkv.locality import content_series
from reference.hubkv.refine import protected_mask, shift_scores
from reference.hubkv.segments import random_order
from reference.scorers.fastkvzip import fastkvzip_loss
from reference.scorers.fastkvzip_trainer import FastKVzipGate, train_fastkvzip

__all__ = [
    "MaskStore",
    "from_csr",
    "to_csr",
    "biadjacency",
    "bipartite_adjacency",
    "biregular_degrees",
    "cheeger_constant",
    "component_count",
    "conductance",
    "connecting_swaps",
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
    "knorm",
    "h2o_mass",
    "h2o",
    "snapkv",
    "pyramidkv_budgets",
    "streaming_llm",
    "hub_mask",
    "discount",
    "smd",
    "attention_density",
    "autocorrelation",
    "content_series",
    "coverage",
    "coverage_weights",
    "distance_profile",
    "gaussian_kernel",
    "greedy",
    "lazy_greedy",
    "marginal_gain",
    "nms",
    "overlap",
    "random_order",
    "retained_chains",
    "segment_coverage",
    "uniform_spread",
    "window_kernel",
    "calibrate",
    "gate",
    "head_budgets",
    "head_weights",
    "hubkv_refine",
    "protected_mask",
    "selectivity",
    "shift_scores",
    "ungated_refine",
    "banish",
    "concatenate_heads",
    "cosine_distribution",
    "cosine_matrix",
    "decay",
    "edges",
    "enhance",
    "graphkv_refine",
    "hide_needle",
    "kv_bytes",
    "needle_recall",
    "neighbour_count",
    "neighbours",
    "principal_components",
    "source_count",
    "source_tokens",
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
    "kivi_prefill",
    "kivi_append",
    "kivi_read",
    "outlier_mask",
    "low_rank",
    "gear_compress",
    "gear_reconstruct",
    "gear_prefill",
    "gear_append",
    "gear_read",
    "quantizer_bytes",
    "kivi_size",
    "gear_size",
    "kivi_share",
    "quantizer_sizes",
    "cake",
    "cake_budgets",
    "cake_cascade",
    "cake_preference",
    "expected_attention",
    "FastKVzipGate",
    "fastkvzip",
    "fastkvzip_loss",
    "kvzip",
    "kvzip_chunk",
    "mean_rotation",
    "query_statistics",
    "train_fastkvzip",
    "refine",
    "compress",
    "hubkv_compress",
    "graphkv_compress",
    "decoding_start",
    "decoding_append",
    "decoding_read",
]
