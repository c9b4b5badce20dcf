"""Analyse the source of the fast layers: calls of the reference, and loops in Python."""

import ast
import sys
from collections.abc import Iterator
from inspect import getsource, isfunction, unwrap
from textwrap import dedent
from types import FunctionType
from typing import Any

import reference
from optimized._rebind import looked_up

# `file::function` -> what its loop runs over: not tokens, heads or queries.
ALLOWED_LOOPS: dict[str, str] = {
    "reference/precision.py::widest": "tensors of a call",
    "reference/evict.py::stored_bytes": "tensors that an object holds",
    "reference/evict.py::_tensors": "parts of an object",
    "reference/evict.py::_parts": "classes of an object",
    "reference/scorers/kvzip.py::kvzip": "chunks of the context, each with a repeat input",
    "reference/scorers/fastkvzip_trainer.py::train_fastkvzip": "steps of training",
    "reference/hex/expander.py::feasible": "multiples of a degree, to name the nearest densities",
    "reference/hex/subtile_expander.py::subtile_expander": "draws, until one is accepted",
    "reference/hex/graph_lift.py::ramanujan_lift": "draws, until one is accepted",
    "reference/hex/cache.py::hex_append": "compressed spans, one after another",
    "reference/hex/cache.py::read_blocks": "compressed spans, each of a size of its own",
    "reference/hex/size.py::hex_bytes": "compressed spans, and their tensors",
    "reference/hex/size.py::paper_size": "tables of the paper",
    "reference/hex/size.py::mean_percent": "three prompts",
    "reference/decoding_compression.py::decoding_append": "compressions, each after the one before",
    "reference/quantizers/gear_cache.py::gear_append": "compressed blocks, each corrected alone",
    "reference/quantizers/gear_cache.py::gear_read": "compressed spans, each of a size of its own",
    "reference/quantizers/size.py::quantizer_bytes": "compressed spans, and their tensors",
    "reference/quantizers/size.py::gear_size": "compressed spans",
    "reference/quantizers/published_sizes.py::quantizer_sizes": "rows of a table",
    "kernels/retain.py::retain": "digits of a key",
    "kernels/graphkv/refine.py::graphkv_refine": "both ends of an edge",
    "kernels/graphkv/refine.py::shares": "sizes of a protected window",
    "kernels/hubkv/refine.py::refine_among": "settings",
    "kernels/hex/_sparse_entries.py::tables": "lengths of spans, and tables of a mask",
    "kernels/hex/_sparse_entries.py::tables_of_span": "tables of a mask",
    "kernels/hex/attention.py::taken": "compressed spans",
    "vector/hex/attention.py::needs_gradients": "compressed spans, and what is stored of them",
    "kernels/hex/compress.py::hex_compress": "stored parts that are numbers",
    "kernels/hex/compress.py::restored": "keys and values",
    "vector/attention.py::attention_drawn": "heads, as many at a time as a cache holds",
    "vector/scorers/h2o.py::h2o_mass": "blocks of queries, as many as a cache holds",
    "vector/hubkv/coverage.py::gains": "blocks of tokens, as many as a cache holds",
    "vector/hubkv/coverage.py::overlap": "blocks of tokens, as many as a cache holds",
    "vector/hubkv/coverage.py::_covered": "blocks of places, as many as a cache holds",
    "vector/hex/packing.py::pack_bits": "doublings of a code's width, up to a byte",
    "vector/hex/_packed_products.py::fields": "bit fields of a lane",
    "vector/hex/_packed_products.py::repeat_bit_field_masks": "bit fields of a lane",
    "vector/hex/_packed_products.py::slots": "codes that go on in the next lane",
    "vector/hex/_packed_products.py::CodeLanes": "bit fields of a lane, and blocks of lanes",
    "vector/hex/attention.py::joined": "runs of spans of one length",
    "vector/hex/attention.py::restored": "compressed spans, keys and values",
    "vector/hex/attention.py::attend": "blocks of queries, and lengths of compressed spans",
    "vector/hex/stacked_cache.py::kept_by": "what is known of an entry",
    "vector/hex/stacked_cache.py::side_by_side": "compressed spans of one length, and their parts",
    "vector/hex/stacked_cache.py::kept_whole": "keys and values",
    "vector/hex/stacked_cache.py::StackedCache": "runs of spans of one length",
    "vector/hex/stacked_cache.py::StackedBlocks": "keys and values, and spans",
    "vector/hex/decode_step.py::hex_decode": "compressed spans, one after another",
    "vector/hex/random_biregular.py::swaps": "rounds of swaps, each over all repeated edges",
    "vector/hex/random_biregular.py::connect": "swaps, one for each component but the last",
    "vector/hex/random_biregular.py::_hangs_together": "steps of a walk, each over all edges",
    "vector/hex/expander.py::random_expander": "draws, until one is accepted",
    "vector/hex/expansion.py::cheeger_constant": "doublings of the sets, one a vertex of 20",
    "vector/hex/expansion.py::conductance": "doublings of the sets, one a vertex of 20",
    "vector/hex/explicit.py::_projective": "inverses in a field of a few dozen numbers",
    "vector/retain.py::lowest_kept": "blocks of rows, as many as a cache holds",
    "vector/graphkv/graph.py::neighbours": "blocks of sources, as many as a cache holds",
    "vector/quantizers/outliers.py::outlier_mask": "blocks of rows, as many as a cache holds",
    "vector/quantizers/low_rank.py::low_rank": "rounds of power iteration",
    "vector/ragged_attention.py::ragged_attention": "blocks of queries, and where heads begin",
    "vector/ragged_attention.py::attend": "heads, no two of one length, each read where it lies",
    "vector/scorers/cake_budgets.py::cake_cascade": "layers, each after what others gave up",
    "vector/scorers/expected_attention.py::_logits": "blocks of tokens, as a cache holds",
    "vector/scorers/knorm.py::norms": "blocks of keys, as many as a cache holds",
    "vector/scorers/query_statistics.py::query_statistics": "heads, of which a cache holds one",
    "vector/scorers/kvzip.py::largest_weights": "blocks of queries, as many as a cache holds",
    "vector/hex/heavy_hitters.py::attention_mass": "blocks of queries, as many as a cache holds",
    "vector/hex/sensitivity.py::sensitivity": "over settings",
    "vector/hex/sensitivity.py::measure_sensitivity": "compressed spans, one after another",
    "vector/hex/spectrum.py::is_within": "steps of Lanczos, until the verdict is certain",
    "vector/hex/spectrum.py::_lanczos": "steps of Lanczos",
    "vector/hubkv/discount.py::maxima_before_and_after": "log2(radius) doublings of a window",
    "vector/hubkv/refine.py::slabs": "whole layers, as many at a time as a cache holds",
    "vector/hubkv/refine.py::refine_by": "whole layers, as many at a time as a cache holds",
    "vector/graphkv/refine.py::_acting": "over the different sizes of a protected window",
    "vector/graphkv/refine.py::_left": "blocks of sources, as many as a cache holds",
    "vector/graphkv/refine.py::graphkv_refine": "ends of an edge, and parts of a batch",
    "vector/graphkv/decay.py::multiply_at": "sources, on a GPU in deterministic mode",
    "vector/graphkv/graph.py::edges": "blocks of sources, as many as a cache holds",
    "vector/graphkv/graph.py::first_equal": "blocks of tokens, as many as a cache holds",
    "vector/compress.py::budgets_of": "over the different sizes of a pool",
    "vector/compress.py::places": "rows of one budget, as many at a time as there is room for",
    "vector/compress.py::rows_of": "over the kinds of vectors an edge compares",
    "vector/compress.py::refine_rows": "over the different budgets of a row",
    "vector/decoding_compression.py::survivors": "over the kinds of vectors an edge compares",
    "vector/hubkv/greedy.py::greedy": "a pick depends on the picks before it",
}


def reached(function: FunctionType) -> Iterator[FunctionType]:
    """Yield a function and all functions of this project that it calls, except validation."""
    seen: set[int] = set()
    waiting: list[Any] = [function]
    while waiting:
        found = waiting.pop()
        found = found.__wrapped__ if hasattr(found, "cache_parameters") else found
        if not isfunction(found) or id(found) in seen or not of_a_body(found.__module__):
            continue
        seen.add(id(found))
        yield found
        called = looked_up(found.__code__)
        here = {name: found.__globals__.get(name) for name in called}
        if reference in here.values():
            public = called & set(reference.__all__)
            here |= {name: unwrap(getattr(reference, name)) for name in public}
        waiting += here.values()


def of_a_body(module: str) -> bool:
    """Whether a module is of the reference or the fast layers, and not of the validation."""
    if module.startswith("reference.contract"):
        return False
    return module.partition(".")[0] in ("reference", "optimized")


def unvectorised_calls(body: FunctionType) -> list[str]:
    """Return the calls of a vectorised body that are not allowed.

    These are functions of the reference that have a vectorised counterpart, and functions with a
    loop over data.
    """
    found = []
    for function in reached(body):
        name, home = function.__name__, vars(function).get("text_of", function).__module__
        if home.startswith("optimized.vector"):
            continue
        mirror = sys.modules.get(home.replace("reference", "optimized.vector", 1))
        body = vars(mirror).get(name, function) if mirror else function
        if "text_of" not in vars(function) and body is not function:
            found.append(f"{home}.{name}")
        place = f"{home.replace('.', '/')}.py::{name}"
        if place not in ALLOWED_LOOPS and functions_with_loops(
            ast.parse(dedent(getsource(function)))
        ):
            found.append(place)
    return found


def functions_with_loops(source: ast.Module) -> list[str]:
    """Return the functions with a loop over data.

    A loop over a literal tuple or list does not count: it runs a fixed number of times. Nor does a
    loop in a Triton kernel, which is device code.
    """
    return [
        getattr(statement, "name", "<module>")
        for statement in source.body
        if not is_kernel(statement) and any(is_loop(node) for node in ast.walk(statement))
    ]


def is_kernel(statement: ast.stmt) -> bool:
    """Whether a statement defines a Triton kernel."""
    marks = statement.decorator_list if isinstance(statement, ast.FunctionDef) else []
    return any("triton.jit" in ast.unparse(mark) for mark in marks)


def is_loop(node: ast.AST) -> bool:
    """Whether a node is a loop whose length depends on data."""
    if isinstance(node, ast.For | ast.comprehension):
        return not is_literal(node.iter)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in ("map", "filter")
    return isinstance(node, ast.While)


def is_literal(node: ast.expr) -> bool:
    """Whether a node is a tuple or list written out element by element."""
    written_out = isinstance(node, ast.Tuple | ast.List)
    return written_out and not any(isinstance(element, ast.Starred) for element in node.elts)
