"""The plain way to each function: what a user writes in at most ten lines of PyTorch.

Each function here has the name of a public function of `optimized`, takes the arguments that
`inputs` beside it draws, and returns the same numbers on ordinary input. It is the best plain way:
unsorted `topk`, `index_select`, one product for each group of query heads. It has no guard, and no
rule for ties, padding or extreme numbers. `python -m optimized.bench ratios` times it.
"""

from importlib import import_module

from optimized.bench.straightforward.rows import ROWS, Row

for _part in ("attention", "selection", "scorers", "hubkv", "graphkv", "hex", "quantizers"):
    import_module(f"optimized.bench.straightforward.{_part}")

_REASONS = {
    "It returns a few numbers from a few numbers, and reads no tensor of tokens.": """
        kept_count stored_bytes cake_budgets cake_cascade pyramidkv_budgets source_count
        neighbour_count kv_bytes needle_recall biregular_degrees ramanujan_bound hex_preset
        hex_bytes hex_size paper_size quantizer_bytes kivi_size gear_size kivi_share
        quantizer_sizes""",
    "It builds or checks a graph of channels, once and in advance; `cases` times one.": """
        random_expander expander_mask half_edge_pairing double_edge_swaps connecting_swaps
        subtile_codes subtile_expander ramanujan_lift random_order biadjacency
        second_singular_value is_ramanujan bipartite_adjacency component_count is_connected
        spectral_gap vertex_expansion subtile_permutations subtile_mask lift new_singular_value
        to_csr from_csr cheeger_constant conductance lps_mask lps_graph""",
    "It measures a method or trains one, and no prompt or decoding step waits for it.": """
        sensitivity train_fastkvzip fastkvzip_loss attention_error attention_density
        autocorrelation content_series distance_profile segment_coverage uniform_spread
        retained_chains modular_utility window_kernel gaussian_kernel coverage_weights coverage
        marginal_gain overlap greedy lazy_greedy cosine_matrix cosine_distribution
        principal_components hide_needle""",
    "It is a chain of functions that have rows.": """
        kvzip refine hex_append hex_recompress decoding_start decoding_append decoding_read
        kivi_append gear_compress gear_reconstruct gear_prefill gear_append gear_read""",
}
WITHOUT: dict[str, str] = {
    name: reason for reason, names in _REASONS.items() for name in names.split()
}
"""The public functions without a row, and why."""

__all__ = ["ROWS", "WITHOUT", "Row"]
