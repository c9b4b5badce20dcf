"""The three papers, equation by equation, in plain PyTorch.

Read in this order: `attention`, `retain`, `evict`, then one folder per paper.
`__all__` is the contract: `optimized` and every implementation under test offer these names.
"""

from inspect import isfunction as _isfunction

from reference.attention import attention, attention_error, attention_weights
from reference.compress import compress, select
from reference.contract import guarded as _guarded
from reference.decoding import (
    DecodingCache,
    DecodingConfig,
    DecodingView,
    decoding_append,
    decoding_read,
    decoding_start,
)
from reference.evict import DenseCache, RaggedCache, evict, stored_bytes
from reference.graphkv.compress import graphkv_compress, graphkv_select
from reference.graphkv.decay import banish, decay, enhance
from reference.graphkv.graph import edges, neighbour_count, neighbours, source_count, source_tokens
from reference.graphkv.keys import (
    CosineDistribution,
    cosine_distribution,
    cosine_matrix,
    kv_bytes,
    principal_components,
)
from reference.graphkv.needle import hide_needle, needle_recall
from reference.graphkv.refine import GraphSettings, concatenate_heads, graphkv_refine
from reference.hex.attention import HexAttention, HexDecoded, hex_attention, hex_decode
from reference.hex.cache import HexCache, hex_append, hex_prefill, hex_read, hex_recompress
from reference.hex.compress import HexBlock, hex_compress, hex_mask, hex_reconstruct
from reference.hex.connectivity import bipartite_adjacency, component_count, is_connected
from reference.hex.covering import lift, new_singular_value, ramanujan_lift
from reference.hex.csr import CSR, from_csr, to_csr
from reference.hex.expander import (
    Degrees,
    Expander,
    biregular_degrees,
    expander_mask,
    random_expander,
)
from reference.hex.expansion import cheeger_constant, conductance, spectral_gap, vertex_expansion
from reference.hex.explicit import lps_graph, lps_mask
from reference.hex.heavy_hitters import attention_mass, h2o_mask, heavy_hitter_mask, recent_mask
from reference.hex.kcvt import Quantised, dequantise, kcvt, quantise
from reference.hex.packing import pack_bits, unpack_bits
from reference.hex.pairing import (
    biadjacency,
    connecting_swaps,
    double_edge_swaps,
    half_edge_pairing,
)
from reference.hex.presets import HexConfig, hex_preset
from reference.hex.sensitivity import Sensitivity, sensitivity
from reference.hex.size import HexBytes, PaperSize, hex_bytes, hex_size, paper_size
from reference.hex.spectrum import is_ramanujan, ramanujan_bound, second_singular_value
from reference.hex.store import MaskStore
from reference.hex.subtile import (
    SubtileExpander,
    subtile_codes,
    subtile_expander,
    subtile_mask,
    subtile_permutations,
)
from reference.hubkv.budgets import head_budgets, ungated_refine
from reference.hubkv.calibration import calibrate, head_weights, selectivity
from reference.hubkv.chains import ChainDiagnostic, retained_chains
from reference.hubkv.compress import hubkv_compress, hubkv_select
from reference.hubkv.coverage import coverage, coverage_weights, marginal_gain, overlap
from reference.hubkv.discount import discount, hub_mask, smd
from reference.hubkv.gate import gate
from reference.hubkv.greedy import greedy, lazy_greedy
from reference.hubkv.kernels import gaussian_kernel, window_kernel
from reference.hubkv.locality import (
    NmsSettings,
    attention_density,
    autocorrelation,
    content_series,
    distance_profile,
    nms,
)
from reference.hubkv.refine import HubSettings, hubkv_refine, protected_mask, shift_scores
from reference.hubkv.segments import random_order, segment_coverage, uniform_spread
from reference.quantizers.gear import GearBlock, gear_compress, gear_reconstruct
from reference.quantizers.gear_cache import GearCache, gear_append, gear_prefill, gear_read
from reference.quantizers.kivi import KiviCache, kivi_append, kivi_prefill, kivi_read
from reference.quantizers.low_rank import LowRank, low_rank
from reference.quantizers.outliers import outlier_mask
from reference.quantizers.published import kivi_share, quantizer_sizes
from reference.quantizers.size import QuantizerBytes, gear_size, kivi_size, quantizer_bytes
from reference.ragged import ragged_attention
from reference.refinement import refine
from reference.retain import kept_count, modular_utility, ranking, retain
from reference.scorers.cake import cake, cake_preference
from reference.scorers.cake_budgets import cake_budgets, cake_cascade
from reference.scorers.expected_attention import expected_attention
from reference.scorers.fastkvzip import GateWeights, fastkvzip, fastkvzip_loss
from reference.scorers.fastkvzip_trainer import FastKVzipGate, train_fastkvzip
from reference.scorers.h2o import h2o, h2o_mass
from reference.scorers.knorm import knorm
from reference.scorers.kvzip import kvzip, kvzip_chunk
from reference.scorers.mean_rotation import mean_rotation
from reference.scorers.pyramidkv import pyramidkv_budgets
from reference.scorers.query_statistics import QueryStatistics, query_statistics
from reference.scorers.scored import Scored
from reference.scorers.snapkv import snapkv
from reference.scorers.streaming_llm import streaming_llm

__all__ = [
    # reference.attention
    "attention_weights",
    "attention",
    "attention_error",
    # reference.retain
    "kept_count",
    "ranking",
    "retain",
    "modular_utility",
    # reference.ragged
    "ragged_attention",
    # reference.evict
    "DenseCache",
    "RaggedCache",
    "evict",
    "stored_bytes",
    # reference.scorers.scored
    "Scored",
    # reference.scorers.cake
    "cake",
    "cake_preference",
    # reference.scorers.cake_budgets
    "cake_budgets",
    "cake_cascade",
    # reference.scorers.query_statistics
    "QueryStatistics",
    "query_statistics",
    # reference.scorers.mean_rotation
    "mean_rotation",
    # reference.scorers.expected_attention
    "expected_attention",
    # reference.scorers.kvzip
    "kvzip_chunk",
    "kvzip",
    # reference.scorers.fastkvzip
    "GateWeights",
    "fastkvzip",
    "fastkvzip_loss",
    # reference.scorers.fastkvzip_trainer
    "FastKVzipGate",
    "train_fastkvzip",
    # reference.scorers.knorm
    "knorm",
    # reference.scorers.h2o
    "h2o_mass",
    "h2o",
    # reference.scorers.snapkv
    "snapkv",
    # reference.scorers.pyramidkv
    "pyramidkv_budgets",
    # reference.scorers.streaming_llm
    "streaming_llm",
    # reference.hubkv.kernels
    "window_kernel",
    "gaussian_kernel",
    # reference.hubkv.coverage
    "coverage_weights",
    "coverage",
    "marginal_gain",
    "overlap",
    # reference.hubkv.greedy
    "greedy",
    "lazy_greedy",
    # reference.hubkv.discount
    "hub_mask",
    "discount",
    "smd",
    # reference.hubkv.calibration
    "selectivity",
    "head_weights",
    "calibrate",
    # reference.hubkv.gate
    "gate",
    # reference.hubkv.refine
    "protected_mask",
    "HubSettings",
    "hubkv_refine",
    "shift_scores",
    # reference.hubkv.budgets
    "ungated_refine",
    "head_budgets",
    # reference.hubkv.segments
    "segment_coverage",
    "uniform_spread",
    "random_order",
    # reference.hubkv.locality
    "autocorrelation",
    "NmsSettings",
    "nms",
    "distance_profile",
    "attention_density",
    "content_series",
    # reference.hubkv.chains
    "ChainDiagnostic",
    "retained_chains",
    # reference.graphkv.graph
    "source_count",
    "source_tokens",
    "edges",
    "neighbour_count",
    "neighbours",
    # reference.graphkv.decay
    "decay",
    "enhance",
    "banish",
    # reference.graphkv.refine
    "concatenate_heads",
    "GraphSettings",
    "graphkv_refine",
    # reference.graphkv.keys
    "cosine_matrix",
    "CosineDistribution",
    "cosine_distribution",
    "principal_components",
    "kv_bytes",
    # reference.graphkv.needle
    "hide_needle",
    "needle_recall",
    # reference.hex.expander
    "Degrees",
    "Expander",
    "biregular_degrees",
    "random_expander",
    "expander_mask",
    # reference.hex.pairing
    "half_edge_pairing",
    "double_edge_swaps",
    "connecting_swaps",
    "biadjacency",
    # reference.hex.spectrum
    "ramanujan_bound",
    "second_singular_value",
    "is_ramanujan",
    # reference.hex.connectivity
    "bipartite_adjacency",
    "component_count",
    "is_connected",
    # reference.hex.expansion
    "spectral_gap",
    "vertex_expansion",
    "cheeger_constant",
    "conductance",
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
    # reference.hex.csr
    "CSR",
    "to_csr",
    "from_csr",
    # reference.hex.store
    "MaskStore",
    # reference.hex.heavy_hitters
    "attention_mass",
    "heavy_hitter_mask",
    "recent_mask",
    "h2o_mask",
    # reference.hex.kcvt
    "Quantised",
    "quantise",
    "dequantise",
    "kcvt",
    # reference.hex.packing
    "pack_bits",
    "unpack_bits",
    # reference.hex.presets
    "HexConfig",
    "hex_preset",
    # reference.hex.compress
    "HexBlock",
    "hex_mask",
    "hex_compress",
    "hex_reconstruct",
    # reference.hex.size
    "HexBytes",
    "PaperSize",
    "hex_bytes",
    "hex_size",
    "paper_size",
    # reference.hex.cache
    "HexCache",
    "hex_prefill",
    "hex_append",
    "hex_recompress",
    "hex_read",
    # reference.hex.attention
    "HexAttention",
    "hex_attention",
    "HexDecoded",
    "hex_decode",
    # reference.hex.sensitivity
    "Sensitivity",
    "sensitivity",
    # reference.quantizers.kivi
    "KiviCache",
    "kivi_prefill",
    "kivi_append",
    "kivi_read",
    # reference.quantizers.outliers
    "outlier_mask",
    # reference.quantizers.low_rank
    "LowRank",
    "low_rank",
    # reference.quantizers.gear
    "GearBlock",
    "gear_compress",
    "gear_reconstruct",
    # reference.quantizers.gear_cache
    "GearCache",
    "gear_prefill",
    "gear_append",
    "gear_read",
    # reference.quantizers.size
    "QuantizerBytes",
    "quantizer_bytes",
    "kivi_size",
    "gear_size",
    # reference.quantizers.published
    "kivi_share",
    "quantizer_sizes",
    # reference.refinement
    "refine",
    # reference.compress
    "select",
    "compress",
    # reference.hubkv.compress
    "hubkv_select",
    "hubkv_compress",
    # reference.graphkv.compress
    "graphkv_select",
    "graphkv_compress",
    # reference.decoding
    "DecodingConfig",
    "DecodingCache",
    "DecodingView",
    "decoding_start",
    "decoding_append",
    "decoding_read",
]

# the door: modules behind it call each other freely, so a call is checked once
globals().update(
    {name: _guarded(__name__, spec) for name in __all__ if _isfunction(spec := globals()[name])}
)
