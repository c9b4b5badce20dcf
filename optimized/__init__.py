"""The reference API, fast: Triton kernels on CUDA, vectorised PyTorch everywhere else.

The table below is the whole optimisation map: the specification, its vectorised body, its kernel.
A row without a kernel runs its vectorised body on every device. `elementwise` declares a
specification that has no loop to get rid of: `optimized.vector` offers that very body.
"""

import reference
from optimized import kernels, vector
from optimized._dispatch import dispatch, elementwise

# attention and selection
attention_weights = dispatch(reference.attention_weights, vector.attention_weights)
attention = dispatch(reference.attention, vector.attention)
attention_error = dispatch(reference.attention_error, vector.attention_error)
kept_count = dispatch(reference.kept_count, vector.kept_count)
ranking = dispatch(reference.ranking, vector.ranking)
retain = dispatch(reference.retain, vector.retain)
modular_utility = dispatch(reference.modular_utility, vector.modular_utility)
DenseCache = reference.DenseCache
RaggedCache = reference.RaggedCache
evict = dispatch(reference.evict, vector.evict)
stored_bytes = elementwise(reference.stored_bytes)

# base scorers
Scored = reference.Scored
cake = dispatch(reference.cake, vector.cake)
cake_preference = dispatch(reference.cake_preference, vector.cake_preference)
cake_budgets = dispatch(reference.cake_budgets, vector.cake_budgets)
cake_cascade = dispatch(reference.cake_cascade, vector.cake_cascade)
QueryStatistics = reference.QueryStatistics
query_statistics = dispatch(reference.query_statistics, vector.query_statistics)
mean_rotation = dispatch(reference.mean_rotation, vector.mean_rotation)
expected_attention = dispatch(reference.expected_attention, vector.expected_attention)
kvzip_chunk = dispatch(reference.kvzip_chunk, vector.kvzip_chunk)
kvzip = dispatch(reference.kvzip, vector.kvzip)
GateWeights = reference.GateWeights
fastkvzip = dispatch(reference.fastkvzip, vector.fastkvzip)
fastkvzip_loss = elementwise(reference.fastkvzip_loss)
FastKVzipGate = reference.FastKVzipGate
train_fastkvzip = elementwise(reference.train_fastkvzip)
knorm = dispatch(reference.knorm, vector.knorm)
h2o_mass = dispatch(reference.h2o_mass, vector.h2o_mass)
h2o = dispatch(reference.h2o, vector.h2o)
snapkv = dispatch(reference.snapkv, vector.snapkv)
pyramidkv_budgets = dispatch(reference.pyramidkv_budgets, vector.pyramidkv_budgets)
streaming_llm = dispatch(reference.streaming_llm, vector.streaming_llm)

# HEX
Degrees = reference.Degrees
Expander = reference.Expander
biregular_degrees = elementwise(reference.biregular_degrees)
random_expander = dispatch(reference.random_expander, vector.random_expander)
expander_mask = dispatch(reference.expander_mask, vector.expander_mask)
half_edge_pairing = dispatch(reference.half_edge_pairing, vector.half_edge_pairing)
double_edge_swaps = dispatch(reference.double_edge_swaps, vector.double_edge_swaps)
connecting_swaps = dispatch(reference.connecting_swaps, vector.connecting_swaps)
biadjacency = dispatch(reference.biadjacency, vector.biadjacency)
ramanujan_bound = elementwise(reference.ramanujan_bound)
second_singular_value = dispatch(reference.second_singular_value, vector.second_singular_value)
is_ramanujan = dispatch(reference.is_ramanujan, vector.is_ramanujan)
bipartite_adjacency = dispatch(reference.bipartite_adjacency, vector.bipartite_adjacency)
component_count = dispatch(reference.component_count, vector.component_count)
is_connected = dispatch(reference.is_connected, vector.is_connected)
spectral_gap = dispatch(reference.spectral_gap, vector.spectral_gap)
vertex_expansion = dispatch(reference.vertex_expansion, vector.vertex_expansion)
cheeger_constant = dispatch(reference.cheeger_constant, vector.cheeger_constant)
conductance = dispatch(reference.conductance, vector.conductance)
SubtileExpander = reference.SubtileExpander
subtile_codes = dispatch(reference.subtile_codes, vector.subtile_codes)
subtile_permutations = dispatch(reference.subtile_permutations, vector.subtile_permutations)
subtile_mask = dispatch(reference.subtile_mask, vector.subtile_mask)
subtile_expander = dispatch(reference.subtile_expander, vector.subtile_expander)
lps_mask = dispatch(reference.lps_mask, vector.lps_mask)
lps_graph = dispatch(reference.lps_graph, vector.lps_graph)
lift = dispatch(reference.lift, vector.lift)
new_singular_value = dispatch(reference.new_singular_value, vector.new_singular_value)
ramanujan_lift = dispatch(reference.ramanujan_lift, vector.ramanujan_lift)
CSR = reference.CSR
to_csr = dispatch(reference.to_csr, vector.to_csr)
from_csr = dispatch(reference.from_csr, vector.from_csr)
MaskStore = vector.MaskStore
attention_mass = dispatch(reference.attention_mass, vector.attention_mass)
heavy_hitter_mask = dispatch(reference.heavy_hitter_mask, vector.heavy_hitter_mask)
recent_mask = dispatch(reference.recent_mask, vector.recent_mask)
h2o_mask = dispatch(reference.h2o_mask, vector.h2o_mask)
Quantised = reference.Quantised
quantise = dispatch(reference.quantise, vector.quantise)
dequantise = elementwise(reference.dequantise)
kcvt = dispatch(reference.kcvt, vector.kcvt)
pack_bits = dispatch(reference.pack_bits, vector.pack_bits)
unpack_bits = dispatch(reference.unpack_bits, vector.unpack_bits)
HexConfig = reference.HexConfig
hex_preset = elementwise(reference.hex_preset)
HexBlock = reference.HexBlock
hex_mask = dispatch(reference.hex_mask, vector.hex_mask)
hex_compress = dispatch(reference.hex_compress, vector.hex_compress)
hex_reconstruct = dispatch(reference.hex_reconstruct, vector.hex_reconstruct)
HexBytes = reference.HexBytes
PaperSize = reference.PaperSize
hex_bytes = elementwise(reference.hex_bytes)
hex_size = elementwise(reference.hex_size)
paper_size = elementwise(reference.paper_size)
HexCache = reference.HexCache
hex_prefill = dispatch(reference.hex_prefill, vector.hex_prefill)
hex_append = dispatch(reference.hex_append, vector.hex_append)
hex_recompress = dispatch(reference.hex_recompress, vector.hex_recompress)
hex_read = dispatch(reference.hex_read, vector.hex_read)
Sensitivity = reference.Sensitivity
sensitivity = dispatch(reference.sensitivity, vector.sensitivity)

# quantisers that HEX is compared with
KiviCache = reference.KiviCache
kivi_prefill = dispatch(reference.kivi_prefill, vector.kivi_prefill)
kivi_append = dispatch(reference.kivi_append, vector.kivi_append)
kivi_read = dispatch(reference.kivi_read, vector.kivi_read)
outlier_mask = dispatch(reference.outlier_mask, vector.outlier_mask)
LowRank = reference.LowRank
low_rank = dispatch(reference.low_rank, vector.low_rank)
GearBlock = reference.GearBlock
gear_compress = dispatch(reference.gear_compress, vector.gear_compress)
gear_reconstruct = dispatch(reference.gear_reconstruct, vector.gear_reconstruct)
GearCache = reference.GearCache
gear_prefill = dispatch(reference.gear_prefill, vector.gear_prefill)
gear_append = dispatch(reference.gear_append, vector.gear_append)
gear_read = dispatch(reference.gear_read, vector.gear_read)
QuantizerBytes = reference.QuantizerBytes
quantizer_bytes = elementwise(reference.quantizer_bytes)
kivi_size = elementwise(reference.kivi_size)
gear_size = elementwise(reference.gear_size)
kivi_share = elementwise(reference.kivi_share)
quantizer_sizes = elementwise(reference.quantizer_sizes)

# HubKV
window_kernel = dispatch(reference.window_kernel, vector.window_kernel)
gaussian_kernel = elementwise(reference.gaussian_kernel)
coverage_weights = dispatch(reference.coverage_weights, vector.coverage_weights)
coverage = dispatch(reference.coverage, vector.coverage)
marginal_gain = dispatch(reference.marginal_gain, vector.marginal_gain)
overlap = dispatch(reference.overlap, vector.overlap)
greedy = dispatch(reference.greedy, vector.greedy)
lazy_greedy = dispatch(reference.lazy_greedy, vector.lazy_greedy)
hub_mask = dispatch(reference.hub_mask, vector.hub_mask)
discount = dispatch(reference.discount, vector.discount)
smd = dispatch(reference.smd, vector.smd, kernels.smd)
selectivity = dispatch(reference.selectivity, vector.selectivity)
head_weights = dispatch(reference.head_weights, vector.head_weights)
calibrate = elementwise(reference.calibrate)
gate = elementwise(reference.gate)
protected_mask = elementwise(reference.protected_mask)
hubkv_refine = dispatch(reference.hubkv_refine, vector.hubkv_refine)
shift_scores = elementwise(reference.shift_scores)
ungated_refine = dispatch(reference.ungated_refine, vector.ungated_refine)
head_budgets = dispatch(reference.head_budgets, vector.head_budgets)
segment_coverage = dispatch(reference.segment_coverage, vector.segment_coverage)
autocorrelation = dispatch(reference.autocorrelation, vector.autocorrelation)
nms = dispatch(reference.nms, vector.nms)
distance_profile = dispatch(reference.distance_profile, vector.distance_profile)
attention_density = dispatch(reference.attention_density, vector.attention_density)
content_series = elementwise(reference.content_series)
uniform_spread = dispatch(reference.uniform_spread, vector.uniform_spread)
random_order = elementwise(reference.random_order)
ChainDiagnostic = reference.ChainDiagnostic
retained_chains = dispatch(reference.retained_chains, vector.retained_chains)

# GraphKV
source_count = elementwise(reference.source_count)
source_tokens = dispatch(reference.source_tokens, vector.source_tokens)
edges = dispatch(reference.edges, vector.edges)
neighbour_count = elementwise(reference.neighbour_count)
neighbours = dispatch(reference.neighbours, vector.neighbours)
decay = dispatch(reference.decay, vector.decay)
enhance = dispatch(reference.enhance, vector.enhance)
banish = dispatch(reference.banish, vector.banish)
concatenate_heads = elementwise(reference.concatenate_heads)
graphkv_refine = dispatch(reference.graphkv_refine, vector.graphkv_refine)
cosine_matrix = dispatch(reference.cosine_matrix, vector.cosine_matrix)
CosineDistribution = reference.CosineDistribution
cosine_distribution = dispatch(reference.cosine_distribution, vector.cosine_distribution)
principal_components = dispatch(reference.principal_components, vector.principal_components)
kv_bytes = elementwise(reference.kv_bytes)
hide_needle = elementwise(reference.hide_needle)
needle_recall = dispatch(reference.needle_recall, vector.needle_recall)

# whole compressors
HubSettings = reference.HubSettings
GraphSettings = reference.GraphSettings
NmsSettings = reference.NmsSettings
refine = dispatch(reference.refine, vector.refine)
compress = dispatch(reference.compress, vector.compress)
hubkv_compress = dispatch(reference.hubkv_compress, vector.hubkv_compress)
graphkv_compress = dispatch(reference.graphkv_compress, vector.graphkv_compress)
DecodingConfig = reference.DecodingConfig
DecodingCache = reference.DecodingCache
DecodingView = reference.DecodingView
decoding_start = dispatch(reference.decoding_start, vector.decoding_start)
decoding_append = dispatch(reference.decoding_append, vector.decoding_append)
decoding_read = dispatch(reference.decoding_read, vector.decoding_read)

__all__ = reference.__all__  # pyright: ignore[reportUnsupportedDunderAll]
