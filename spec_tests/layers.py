"""Read the source of the fast layers: what they import from the reference, where they loop."""

import ast

import reference

# What any body may take from the reference: argument checks, the precision rule, result types.
CHECKS = ("reference.errors", "reference.precision")
SHARED = {
    "errors",
    "attention_errors",
    "cache_errors",
} | {n for n in reference.__all__ if isinstance(getattr(reference, n), type)}

# `file::function`, and why its loop is not one over tokens, heads or queries.
ALLOWED_LOOPS: dict[str, str] = {
    "vector/scorers/_window.py::drawn": "heads, as many at a time as a cache holds",
    "vector/scorers/h2o.py::h2o_mass": "blocks of queries, as many as a cache holds",
    "vector/hex/pairing.py::swaps": "rounds of swaps, each over all repeated edges",
    "vector/hex/pairing.py::connect": "swaps, one for each component but the last",
    "vector/hex/pairing.py::_hangs_together": "steps of a walk, each over all edges",
    "vector/hex/expander.py::random_expander": "draws, until one is accepted",
    "vector/hex/expansion.py::cheeger_constant": "doublings of the sets, one a vertex of 20",
    "vector/hex/expansion.py::conductance": "doublings of the sets, one a vertex of 20",
    "vector/hex/explicit.py::_projective": "inverses in a field of a few dozen numbers",
    "vector/gear.py::low_rank": "rounds of power iteration",
    "vector/gear_cache.py::gear_append": "compressed blocks, each with a correction of its own",
    "vector/gear_cache.py::gear_read": "compressed spans, each of a size of its own",
    "vector/scorers/cake_budgets.py::cake_cascade": "layers, each after what others gave up",
    "vector/scorers/expected_attention.py::_logits": "blocks of tokens, as a cache holds",
    "vector/scorers/kvzip.py::_drawn": "blocks of queries, as many as a cache holds",
    "vector/hex/heavy_hitters.py::attention_mass": "blocks of queries, as many as a cache holds",
    "vector/hex/sensitivity.py::sensitivity": "over settings",
    "vector/hex/sensitivity.py::stream": "compressed spans, each over what the ones before left",
    "vector/hex/spectrum.py::is_within": "steps of Lanczos, until the verdict is certain",
    "vector/hex/spectrum.py::_lanczos": "steps of Lanczos",
    "vector/_select.py::_by_counting": "over layers or batch rows, each a long pool",
    "vector/hubkv/_windows.py::strongest_neighbours": "log2(radius) doublings of a window",
    "vector/hubkv/refine.py::hubkv_refine": "whole layers, as many at a time as a cache holds",
    "vector/graphkv/refine.py::_acting": "over the different sizes of a protected window",
    "vector/compress.py::pool_budgets": "over the different sizes of a pool",
    "vector/compress.py::rows_of": "over the kinds of vectors an edge compares",
    "vector/refinement.py::refine_rows": "over the different budgets of a row",
    "vector/decoding.py::decoding_append": "compressions, each over what the one before left",
    "vector/decoding.py::_survivors": "over the kinds of vectors an edge compares",
    "vector/hubkv/greedy.py::greedy": "a pick depends on the picks before it",
}


def declared_elementwise(table: ast.Module) -> set[str]:
    """Return the names that the table binds with `elementwise(reference.name)`."""
    return {
        target.id
        for node in table.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        if ast.unparse(node.value.func) == "elementwise"
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def foreign_imports(source: ast.Module, elementwise: set[str]) -> list[str]:
    """Return what `source` imports from the reference and must not."""
    found = []
    for node in ast.walk(source):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if within_reference(alias.name)]
        elif isinstance(node, ast.ImportFrom) and node.module not in CHECKS:
            taken = [alias.name for alias in node.names if within_reference(node.module or "")]
            found += [name for name in taken if name not in SHARED | elementwise]
    return found


def within_reference(module: str) -> bool:
    """Whether a dotted name is the reference or part of it."""
    return module.partition(".")[0] == "reference"


def loops(source: ast.Module) -> list[str]:
    """Return the functions with a loop, but one over a literal or within a kernel.

    A loop over a literal tuple or list runs a fixed number of times; a loop inside a Triton kernel
    is device code.
    """
    return [
        getattr(statement, "name", "<module>")
        for statement in source.body
        if not is_kernel(statement) and any(is_loop(node) for node in ast.walk(statement))
    ]


def is_kernel(statement: ast.stmt) -> bool:
    """Whether Triton compiles the function."""
    marks = statement.decorator_list if isinstance(statement, ast.FunctionDef) else []
    return any("triton.jit" in ast.unparse(mark) for mark in marks)


def is_loop(node: ast.AST) -> bool:
    """Whether a node repeats something as often as its data say."""
    if isinstance(node, ast.For | ast.comprehension):
        return not is_literal(node.iter)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in ("map", "filter")
    return isinstance(node, ast.While)


def is_literal(node: ast.expr) -> bool:
    """Whether a tuple or list is written out element by element."""
    written_out = isinstance(node, ast.Tuple | ast.List)
    return written_out and not any(isinstance(element, ast.Starred) for element in node.elts)
