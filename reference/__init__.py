"""The three papers, equation by equation, in plain PyTorch.

Read in this order: `attention`, `retain`, `evict`, then one folder per paper.
`__all__` is the contract: `optimized` and every implementation under test offer these names.
"""

from inspect import isfunction as _isfunction

from reference.attention import attention, attention_error, attention_weights
from reference.compress import compress, select
from reference.contract.docstrings import documented as _documented
from reference.contract.enforce import enforce_contract as _guarded
from reference.decoding_compression import (
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
from reference.graphkv.key_analysis import (
    CosineDistribution,
    cosine_distribution,
    cosine_matrix,
    kv_bytes,
    principal_components,
)
from reference.graphkv.needle import hide_needle, needle_recall
from reference.graphkv.refine import GraphSettings, concatenate_heads, graphkv_refine
from reference.hex.attention import HexAttention, hex_attention
from reference.hex.cache import HexCache, hex_append, hex_prefill, hex_read, hex_recompress
from reference.hex.compress import HexBlock, hex_compress, hex_mask, hex_reconstruct
from reference.hex.connectivity import bipartite_adjacency, component_count, is_connected
from reference.hex.csr import CSR, from_csr, to_csr
from reference.hex.decode_step import HexDecoded, hex_decode
from reference.hex.expander import (
    Degrees,
    Expander,
    biregular_degrees,
    expander_mask,
    random_expander,
)
from reference.hex.expansion import cheeger_constant, conductance, spectral_gap, vertex_expansion
from reference.hex.explicit import lps_graph, lps_mask
from reference.hex.graph_lift import lift, new_singular_value, ramanujan_lift
from reference.hex.heavy_hitters import attention_mass, h2o_mask, heavy_hitter_mask, recent_mask
from reference.hex.kcvt import Quantised, dequantise, kcvt, quantise
from reference.hex.mask_cache import MaskStore
from reference.hex.packing import pack_bits, unpack_bits
from reference.hex.presets import HexConfig, hex_preset
from reference.hex.random_biregular import (
    biadjacency,
    connecting_swaps,
    double_edge_swaps,
    half_edge_pairing,
)
from reference.hex.sensitivity import Sensitivity, sensitivity
from reference.hex.size import HexBytes, PaperSize, hex_bytes, hex_size, paper_size
from reference.hex.spectrum import is_ramanujan, ramanujan_bound, second_singular_value
from reference.hex.subtile_expander import (
    SubtileExpander,
    subtile_codes,
    subtile_expander,
    subtile_mask,
    subtile_permutations,
)
from reference.hubkv.compress import hubkv_compress, hubkv_select
from reference.hubkv.coverage import coverage, coverage_weights, marginal_gain, overlap
from reference.hubkv.coverage_kernels import gaussian_kernel, window_kernel
from reference.hubkv.discount import discount, hub_mask, smd
from reference.hubkv.greedy import greedy, lazy_greedy
from reference.hubkv.head_budgets import head_budgets
from reference.hubkv.head_calibration import calibrate, head_weights, selectivity
from reference.hubkv.importance_locality import (
    attention_density,
    autocorrelation,
    content_series,
    distance_profile,
)
from reference.hubkv.nms import NmsSettings, nms
from reference.hubkv.ratio_gate import gate
from reference.hubkv.refine import HubSettings, hubkv_refine, protected_mask, shift_scores
from reference.hubkv.segment_coverage import random_order, segment_coverage, uniform_spread
from reference.hubkv.span_retention import ChainDiagnostic, retained_chains
from reference.hubkv.ungated_refine import ungated_refine
from reference.quantizers.gear import GearBlock, gear_compress, gear_reconstruct
from reference.quantizers.gear_cache import GearCache, gear_append, gear_prefill, gear_read
from reference.quantizers.kivi import KiviCache, kivi_append, kivi_prefill, kivi_read
from reference.quantizers.low_rank import LowRank, low_rank
from reference.quantizers.outliers import outlier_mask
from reference.quantizers.published_sizes import kivi_share, quantizer_sizes
from reference.quantizers.size import QuantizerBytes, gear_size, kivi_size, quantizer_bytes
from reference.ragged_attention import RaggedAttention, ragged_attention
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

# in reading order, a line for each file
__all__ = ["attention_weights", "attention", "attention_error"]
__all__ += ["kept_count", "ranking", "retain", "modular_utility"]
__all__ += ["RaggedAttention", "ragged_attention"]
__all__ += ["DenseCache", "RaggedCache", "evict", "stored_bytes"]
__all__ += ["Scored"]
__all__ += ["cake", "cake_preference"]
__all__ += ["cake_budgets", "cake_cascade"]
__all__ += ["QueryStatistics", "query_statistics"]
__all__ += ["mean_rotation"]
__all__ += ["expected_attention"]
__all__ += ["kvzip_chunk", "kvzip"]
__all__ += ["GateWeights", "fastkvzip", "fastkvzip_loss"]
__all__ += ["FastKVzipGate", "train_fastkvzip"]
__all__ += ["knorm"]
__all__ += ["h2o_mass", "h2o"]
__all__ += ["snapkv"]
__all__ += ["pyramidkv_budgets"]
__all__ += ["streaming_llm"]
__all__ += ["window_kernel", "gaussian_kernel"]
__all__ += ["coverage_weights", "coverage", "marginal_gain", "overlap"]
__all__ += ["greedy", "lazy_greedy"]
__all__ += ["hub_mask", "discount", "smd"]
__all__ += ["selectivity", "head_weights", "calibrate"]
__all__ += ["gate"]
__all__ += ["protected_mask", "HubSettings", "hubkv_refine", "shift_scores"]
__all__ += ["ungated_refine"]
__all__ += ["head_budgets"]
__all__ += ["segment_coverage", "uniform_spread", "random_order"]
__all__ += ["autocorrelation", "distance_profile", "attention_density", "content_series"]
__all__ += ["NmsSettings", "nms"]
__all__ += ["ChainDiagnostic", "retained_chains"]
__all__ += ["source_count", "source_tokens", "edges", "neighbour_count", "neighbours"]
__all__ += ["decay", "enhance", "banish"]
__all__ += ["concatenate_heads", "GraphSettings", "graphkv_refine"]
__all__ += ["cosine_matrix", "CosineDistribution", "cosine_distribution", "principal_components"]
__all__ += ["kv_bytes"]
__all__ += ["hide_needle", "needle_recall"]
__all__ += ["Degrees", "Expander", "biregular_degrees", "random_expander", "expander_mask"]
__all__ += ["half_edge_pairing", "double_edge_swaps", "connecting_swaps", "biadjacency"]
__all__ += ["ramanujan_bound", "second_singular_value", "is_ramanujan"]
__all__ += ["bipartite_adjacency", "component_count", "is_connected"]
__all__ += ["spectral_gap", "vertex_expansion", "cheeger_constant", "conductance"]
__all__ += ["SubtileExpander", "subtile_codes", "subtile_permutations", "subtile_mask"]
__all__ += ["subtile_expander"]
__all__ += ["lps_mask", "lps_graph"]
__all__ += ["lift", "new_singular_value", "ramanujan_lift"]
__all__ += ["CSR", "to_csr", "from_csr"]
__all__ += ["MaskStore"]
__all__ += ["attention_mass", "heavy_hitter_mask", "recent_mask", "h2o_mask"]
__all__ += ["Quantised", "quantise", "dequantise", "kcvt"]
__all__ += ["pack_bits", "unpack_bits"]
__all__ += ["HexConfig", "hex_preset"]
__all__ += ["HexBlock", "hex_mask", "hex_compress", "hex_reconstruct"]
__all__ += ["HexBytes", "PaperSize", "hex_bytes", "hex_size", "paper_size"]
__all__ += ["HexCache", "hex_prefill", "hex_append", "hex_recompress", "hex_read"]
__all__ += ["HexAttention", "hex_attention", "HexDecoded", "hex_decode"]
__all__ += ["Sensitivity", "sensitivity"]
__all__ += ["KiviCache", "kivi_prefill", "kivi_append", "kivi_read"]
__all__ += ["outlier_mask"]
__all__ += ["LowRank", "low_rank"]
__all__ += ["GearBlock", "gear_compress", "gear_reconstruct"]
__all__ += ["GearCache", "gear_prefill", "gear_append", "gear_read"]
__all__ += ["QuantizerBytes", "quantizer_bytes", "kivi_size", "gear_size"]
__all__ += ["kivi_share", "quantizer_sizes"]
__all__ += ["refine"]
__all__ += ["select", "compress"]
__all__ += ["hubkv_select", "hubkv_compress"]
__all__ += ["graphkv_select", "graphkv_compress"]
__all__ += ["DecodingConfig", "DecodingCache", "DecodingView", "decoding_start", "decoding_append"]
__all__ += ["decoding_read"]

# The package checks arguments. Its modules call each other without checks.
globals().update(
    {
        name: _guarded(__name__, spec) if _isfunction(spec) else spec
        for name in __all__
        if (spec := _documented(globals()[name]))
    }
)
