"""The reference API, fast: Triton kernels on CUDA, vectorised PyTorch everywhere else.

The table below is the whole optimisation map: the specification, its vectorised body, its kernel.
A row without a kernel runs its vectorised body on every device.
"""

import reference
from optimized import kernels, vector
from optimized._dispatch import dispatch

attention_weights = dispatch(reference.attention_weights, vector.attention_weights)
attention = dispatch(reference.attention, vector.attention)
attention_error = dispatch(reference.attention_error, vector.attention_error)

kept_count = dispatch(reference.kept_count, vector.kept_count)
ranking = dispatch(reference.ranking, vector.ranking)
retain = dispatch(reference.retain, vector.retain)
modular_utility = dispatch(reference.modular_utility, vector.modular_utility)

DenseCache, RaggedCache = reference.DenseCache, reference.RaggedCache
evict = dispatch(reference.evict, vector.evict)
stored_bytes = dispatch(reference.stored_bytes, vector.stored_bytes)

Degrees, Expander = reference.Degrees, reference.Expander
SubtileExpander = reference.SubtileExpander
half_edge_pairing = dispatch(reference.half_edge_pairing, vector.half_edge_pairing)
double_edge_swaps = dispatch(reference.double_edge_swaps, vector.double_edge_swaps)
biadjacency = dispatch(reference.biadjacency, vector.biadjacency)
ramanujan_bound = dispatch(reference.ramanujan_bound, vector.ramanujan_bound)
second_singular_value = dispatch(reference.second_singular_value, vector.second_singular_value)
is_ramanujan = dispatch(reference.is_ramanujan, vector.is_ramanujan)
bipartite_adjacency = dispatch(reference.bipartite_adjacency, vector.bipartite_adjacency)
component_count = dispatch(reference.component_count, vector.component_count)
is_connected = dispatch(reference.is_connected, vector.is_connected)
spectral_gap = dispatch(reference.spectral_gap, vector.spectral_gap)
vertex_expansion = dispatch(reference.vertex_expansion, vector.vertex_expansion)
cheeger_constant = dispatch(reference.cheeger_constant, vector.cheeger_constant)
conductance = dispatch(reference.conductance, vector.conductance)
biregular_degrees = dispatch(reference.biregular_degrees, vector.biregular_degrees)
random_expander = dispatch(reference.random_expander, vector.random_expander)
expander_mask = dispatch(reference.expander_mask, vector.expander_mask)
subtile_codes = dispatch(reference.subtile_codes, vector.subtile_codes)
subtile_permutations = dispatch(reference.subtile_permutations, vector.subtile_permutations)
subtile_mask = dispatch(reference.subtile_mask, vector.subtile_mask)
subtile_expander = dispatch(reference.subtile_expander, vector.subtile_expander)
lps_mask = dispatch(reference.lps_mask, vector.lps_mask)
lps_graph = dispatch(reference.lps_graph, vector.lps_graph)
lift = dispatch(reference.lift, vector.lift)
new_singular_value = dispatch(reference.new_singular_value, vector.new_singular_value)
ramanujan_lift = dispatch(reference.ramanujan_lift, vector.ramanujan_lift)
CSR, MaskStore = reference.CSR, vector.MaskStore
to_csr = dispatch(reference.to_csr, vector.to_csr)
from_csr = dispatch(reference.from_csr, vector.from_csr)

Quantised = reference.Quantised
HexConfig = reference.HexConfig
HexBlock = reference.HexBlock
HexCache = reference.HexCache
HexBytes = reference.HexBytes
PaperSize = reference.PaperSize
Sensitivity = reference.Sensitivity
attention_mass = dispatch(reference.attention_mass, vector.attention_mass)
heavy_hitter_mask = dispatch(reference.heavy_hitter_mask, vector.heavy_hitter_mask)
recent_mask = dispatch(reference.recent_mask, vector.recent_mask)
h2o_mask = dispatch(reference.h2o_mask, vector.h2o_mask)
quantise = dispatch(reference.quantise, vector.quantise)
dequantise = dispatch(reference.dequantise, vector.dequantise)
kcvt = dispatch(reference.kcvt, vector.kcvt)
pack_bits = dispatch(reference.pack_bits, vector.pack_bits)
unpack_bits = dispatch(reference.unpack_bits, vector.unpack_bits)
hex_preset = dispatch(reference.hex_preset, vector.hex_preset)
hex_mask = dispatch(reference.hex_mask, vector.hex_mask)
hex_compress = dispatch(reference.hex_compress, vector.hex_compress)
hex_reconstruct = dispatch(reference.hex_reconstruct, vector.hex_reconstruct)
hex_prefill = dispatch(reference.hex_prefill, vector.hex_prefill)
hex_append = dispatch(reference.hex_append, vector.hex_append)
hex_recompress = dispatch(reference.hex_recompress, vector.hex_recompress)
hex_read = dispatch(reference.hex_read, vector.hex_read)
hex_bytes = dispatch(reference.hex_bytes, vector.hex_bytes)
hex_size = dispatch(reference.hex_size, vector.hex_size)
paper_size = dispatch(reference.paper_size, vector.paper_size)
sensitivity = dispatch(reference.sensitivity, vector.sensitivity)

hub_mask = dispatch(reference.hub_mask, vector.hub_mask)
discount = dispatch(reference.discount, vector.discount)
smd = dispatch(reference.smd, vector.smd, kernels.smd)

__all__ = reference.__all__  # pyright: ignore[reportUnsupportedDunderAll]
