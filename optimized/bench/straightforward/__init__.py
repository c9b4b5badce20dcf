"""The plain way to each function: what a user writes in at most ten lines of PyTorch.

Each function here has the name of a public function of `optimized`, takes the arguments that
`inputs` beside it draws, and returns the same numbers on ordinary input. It is the best plain way:
unsorted `topk`, `index_select`, one product for each group of query heads. It has no guard, and no
rule for ties, padding or extreme numbers. `python -m optimized.bench ratios` times it.
"""

from importlib import import_module

from optimized.bench.straightforward.rows import ROWS, Row

for _part in (
    *("attention", "selection", "scorers", "hubkv", "graphkv"),
    *("expander", "hex", "quantizers"),
):
    import_module(f"optimized.bench.straightforward.{_part}")

_REASONS = {
    "It returns a few numbers from a few numbers, and reads no tensor of tokens.": """
        kept_count stored_bytes cake_budgets cake_cascade pyramidkv_budgets source_count
        neighbour_count kv_bytes needle_recall biregular_degrees ramanujan_bound hex_preset
        hex_bytes hex_size paper_size quantizer_bytes kivi_size gear_size kivi_share
        quantizer_sizes""",
    "Its result is defined by a stream of random numbers; `cases` times one.": """
        random_expander expander_mask half_edge_pairing double_edge_swaps connecting_swaps
        subtile_codes subtile_expander ramanujan_lift random_order""",
    "It tries every subset of a small graph, by definition.": "cheeger_constant conductance",
    "It lists a group of matrices over a finite field, once and in advance.": "lps_mask lps_graph",
    "It is a chain of functions that have rows, over a cache or a training set.": """
        train_fastkvzip sensitivity hex_recompress
        decoding_start decoding_append decoding_read kivi_append
        gear_compress gear_reconstruct gear_prefill gear_append gear_read""",
}
WITHOUT: dict[str, str] = {
    name: reason for reason, names in _REASONS.items() for name in names.split()
}
"""The public functions without a row, and why."""

__all__ = ["ROWS", "WITHOUT", "Row"]
