"""The fast layers do not call slow bodies of the specification, nor loop over data in Python."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

import ast
import re
import sys
from collections.abc import Iterable
from inspect import getsource, isfunction, unwrap
from pathlib import Path
from subprocess import check_output
from textwrap import dedent
from types import CodeType, FunctionType
from typing import Any, assert_type

import pytest
import torch
from torch import Tensor

import optimized
import reference
from optimized import kernels, vector
from optimized._dispatch import dispatch, modules
from optimized.vector.graphkv.decay import multiply_at
from optimized.vector.graphkv.graph import sum_of_bits

ROOT = Path(optimized.__file__).parents[1]
FAST = [path for part in ("vector", "kernels") for path in ROOT.glob(f"optimized/{part}/*/**/*.py")]
FAST += [path for part in ("vector", "kernels") for path in ROOT.glob(f"optimized/{part}/[!_]*.py")]
LOOPS = {
    "blocks, as many as a cache holds": """_covered _left _logits attention_drawn attention_mass
        edges first_equal gains h2o_mass hubkv_refine largest_weights lowest_kept mass_by_blocks
        neighbours norms outlier_mask overlap""",
    "compressed spans, lengths of these, or what is stored of one": """StackedBlocks StackedCache
        attend gear_append gear_read gear_size hex_append hex_bytes hex_compress hex_decode joined
        kept_by kept_whole measure_sensitivity needs_gradients quantizer_bytes read_blocks restored
        side_by_side tables tables_of_span taken""",
    "bits, digits or fields of a number": """CodeLanes _projective fields pack_bits
        repeat_bit_field_masks slots""",
    "heads, no two of one length, or of which a cache holds one": """query_statistics
        ragged_attention""",
    "draws or steps, each after the one before": """_hangs_together _lanczos cake_cascade connect
        decoding_append feasible greedy is_within low_rank ramanujan_lift random_expander
        subtile_expander swaps train_fastkvzip""",
    "doublings of a window or of sets": "cheeger_constant conductance maxima_before_and_after",
    "different budgets or windows": "_acting budgets_of refine_rows row_indices shares",
    "ends of an edge, or kinds of vectors": "graphkv_refine rows_of survivors",
    "chunks of a context, each with a repeat input": "kvzip",
    "sources, on a GPU in deterministic mode": "multiply_at",
    "settings, arguments, or parts of an object": """_parts _tensors mean_percent paper_size
        quantizer_sizes retain sensitivity stored_bytes widest""",
}
"""What the loops of functions run over: not tokens, heads or queries one by one."""


def reached(functions: Iterable[Any]) -> set[FunctionType]:
    """Return functions, and those of the specification and of the bodies that they call."""
    found, waiting = set[FunctionType](), [*functions]
    while waiting:
        function = unwrap(waiting.pop())
        home = getattr(function, "__module__", None) or ""
        if not isfunction(function) or function in found or "reference.contract" in home:
            continue
        if home.startswith(("reference.", "optimized.vector.")):
            found.add(function)
            waiting += [function.__globals__.get(name) for name in looked_up(function.__code__)]
    return found


def looked_up(code: CodeType) -> set[str]:
    """Return the global names that code looks up, including those of inner functions."""
    inner = [part for part in code.co_consts if isinstance(part, CodeType)]
    return set(code.co_names).union(*map(looked_up, inner))


BODIES = reached(getattr(vector, name) for name in vector.__all__)
OF_THE_SPECIFICATION = [body for body in BODIES if body.__module__.startswith("reference.")]


def test_no_body_reaches_a_slow_body_of_the_specification():
    slow = {
        body
        for body in OF_THE_SPECIFICATION
        if (home := sys.modules.get(body.__module__.replace("reference", "optimized.vector", 1)))
        and unwrap(vars(home).get(body.__name__, body)) is not body
    }
    assert not slow


def test_the_loops_are_the_listed_ones():
    sources = [path.read_text() for path in FAST]
    sources += [dedent(getsource(body)) for body in OF_THE_SPECIFICATION]
    found = {
        statement.name
        for source in sources
        for statement in ast.parse(source).body
        if isinstance(statement, ast.FunctionDef | ast.ClassDef) and loops(statement)
    }
    assert found == {name for names in LOOPS.values() for name in names.split()}


def loops(statement: ast.FunctionDef | ast.ClassDef) -> bool:
    """Whether a statement has a loop whose length depends on data, outside a Triton kernel."""
    if any("triton.jit" in ast.unparse(mark) for mark in statement.decorator_list):
        return False
    return any(
        isinstance(node, ast.While)
        or (isinstance(node, ast.For | ast.comprehension) and not is_literal(node.iter))
        or (isinstance(node, ast.Call) and ast.unparse(node.func) in ("map", "filter"))
        for node in ast.walk(statement)
    )


def is_literal(node: ast.expr) -> bool:
    """Whether a node is a tuple or list written out element by element."""
    written_out = isinstance(node, ast.Tuple | ast.List)
    return written_out and not any(isinstance(element, ast.Starred) for element in node.elts)


def test_a_body_that_has_a_kernel_runs_it_within_other_bodies():
    inner = {
        name
        for home in modules("optimized.vector")
        for name, body in vars(home).items()
        if isfunction(body) and "without_kernel" in vars(body)
    }
    assert inner == set(kernels.__all__) or not kernels.__all__, "decorate it with kernel_on_gpu"


@pytest.mark.parametrize("package", ["models", "vector", "kernels"])
def test_what_is_shipped_for_others_imports_nothing_of_the_command(package):
    found = {
        name
        for path in ROOT.glob(f"optimized/{package}/**/*.py")
        for name in imported(ast.walk(ast.parse(path.read_text())))
        if re.match(r"(spec_tests|docs|optimized\.(study|tiny|bench|counts))\b", name)
    }
    assert found == set()


def test_no_module_is_imported_by_what_it_imports():
    files = [path for name in ("reference", "optimized") for path in ROOT.glob(f"{name}/**/*.py")]
    places = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in files}
    needed = {
        place: {
            module
            for name in imported(ast.parse(path.read_text()).body)
            for module in (name, name.rpartition(".")[0])
            if module in places
        }
        for place, path in places.items()
    }
    while free := {place for place, wanted in needed.items() if not wanted & needed.keys()}:
        needed = {place: wanted for place, wanted in needed.items() if place not in free}
    assert not needed


def test_the_reference_imports_nothing_of_other_layers():
    names = {
        name.partition(".")[0]
        for path in ROOT.glob("reference/**/*.py")
        for name in imported(ast.walk(ast.parse(path.read_text())))
    }
    allowed = {"torch", "numpy", "scipy", "jaxtyping", "annotated_types", "reference"}
    assert names <= allowed | sys.stdlib_module_names


def imported(nodes: Iterable[ast.AST]) -> list[str]:
    """Return the full names that statements import."""
    return [
        f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    ]


@pytest.mark.parametrize("layer", [vector, kernels])
def test_a_body_stands_at_the_path_of_its_function(layer):
    for name in layer.__all__:
        spec, body = unwrap(getattr(reference, name)), getattr(layer, name)
        path = spec.__module__.replace("reference", layer.__name__)
        assert body is spec or body.__module__ == path, name


def test_a_row_with_another_default_is_refused_at_import():
    def smd(scores, radius=3, gamma=0.5, protected=None):
        return scores, radius, gamma, protected

    with pytest.raises(TypeError, match="'radius', 3"):
        dispatch(reference.smd, smd)


def test_without_a_gpu_no_kernel_is_imported():
    asked = "import sys, torch, optimized; optimized.smd(torch.ones(3)); print(*sys.modules)"
    found = check_output([sys.executable, "-c", asked], text=True).split()
    assert "optimized.vector" in found
    assert "optimized.kernels" not in found


def test_a_type_checker_sees_through_the_table():
    """In CI pyright checks the type and the refused call; `assert_type` does nothing here."""
    assert_type(optimized.smd(torch.ones(3)), Tensor)
    with pytest.raises(TypeError):
        optimized.smd(torch.ones(3), radius="two")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_vectors_are_equal_where_their_sums_of_bits_are(dtype):
    """A GPU finds equal keys so; the sum of their numbers depends on where they lie in memory."""
    vectors = torch.randint(-1, 2, (2, 60, 3), dtype=dtype)
    vectors = vectors.where(vectors != 0, torch.where(torch.rand(2, 60, 3) < 0.5, 0.0, -0.0))
    sums = sum_of_bits(vectors)
    equal = (vectors[:, :, None] == vectors[:, None]).all(-1)
    assert torch.equal(sums[:, :, None] == sums[:, None], equal)


def test_products_of_sources_are_those_that_a_cpu_scatters(monkeypatch):
    """A GPU in deterministic mode multiplies them source by source."""
    places = torch.rand(3, 5, 50).argsort(-1)[..., :7]
    factor, numbers = torch.rand(3, 50).double(), torch.rand(3, 5, 7).double()
    scattered = multiply_at(factor, places, numbers)
    monkeypatch.setattr(torch.Tensor, "is_cpu", False)
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.equal(multiply_at(factor, places, numbers), scattered)
