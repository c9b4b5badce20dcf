"""The fast layers do not call the specification, and have no Python loop over data."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

import ast
import re
import sys
from contextlib import nullcontext
from inspect import getclosurevars, getdoc, isclass, isfunction, signature, unwrap
from pathlib import Path
from subprocess import check_output
from typing import Any, assert_type

import pytest
import torch
from torch import Tensor

import optimized
import reference
from optimized import kernels, vector
from optimized._dispatch import dispatch, on_gpu
from optimized.vector.graphkv.decay import multiply_at
from optimized.vector.graphkv.graph import sum_of_bits
from spec_tests.internal.project.loop_analysis import (
    ALLOWED_LOOPS,
    functions_with_loops,
    unvectorised_calls,
)
from spec_tests.operations import Operations

TABLE = Path(optimized.__file__)
FILES = sorted(
    path
    for part in ("vector", "kernels")
    for path in TABLE.parent.glob(f"{part}/**/*.py")
    if path.parent.name != part or path.stem != "__init__"
)


def test_no_body_reaches_a_slow_body_or_a_loop_of_the_specification():
    bodies = {name: getattr(vector, name) for name in vector.__all__}
    found = {name: unvectorised_calls(body) for name, body in bodies.items() if isfunction(body)}
    assert not {name: what for name, what in found.items() if what}


def test_the_loops_are_the_allowed_ones_and_none_runs_over_data():
    found = {
        f"{path.relative_to(TABLE.parent)}::{function}"
        for path in FILES
        for function in functions_with_loops(ast.parse(path.read_text()))
    }
    assert found == {where for where in ALLOWED_LOOPS if not where.startswith("reference/")}


@pytest.mark.parametrize("package", ["models", "vector", "kernels"])
def test_what_is_shipped_for_others_imports_nothing_of_the_command(package):
    found = {
        name
        for path in TABLE.parent.glob(f"{package}/**/*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in imported(node)
        if re.match(r"(spec_tests|docs|optimized\.(study|tiny|bench|counts))\b", name)
    }
    assert found == set()


def test_no_module_is_imported_by_what_it_imports():
    root = TABLE.parent.parent
    files = [
        path for package in ("reference", "optimized") for path in root.glob(f"{package}/**/*.py")
    ]
    places = {".".join(path.relative_to(root).with_suffix("").parts): path for path in files}
    needed = {
        place: {
            module
            for node in ast.parse(path.read_text()).body
            for name in imported(node)
            for module in (name, name.rpartition(".")[0])
            if module in places
        }
        for place, path in places.items()
    }
    while free := {place for place, wanted in needed.items() if not wanted & needed.keys()}:
        needed = {place: wanted for place, wanted in needed.items() if place not in free}
    assert not needed


def imported(node: ast.AST) -> list[str]:
    """Return the full names that a statement imports."""
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def test_the_checker_sees_a_body_that_calls_the_specification():
    def borrowed(scores):
        return reference.hub_mask(scores)

    borrowed.__module__ = "optimized.vector.hubkv"
    spec = "reference/hubkv/discount.py::hub_mask"
    assert unvectorised_calls(borrowed) == ["reference.hubkv.discount.hub_mask", spec]


def test_the_checker_sees_loops_over_tokens_heads_and_queries():
    looping = """
def by_token(scores):
    for i in range(scores.shape[-1]):
        scores[..., i] += 1
def by_head(scores):
    return torch.stack([head.cumsum(-1) for head in scores])
def by_query(queries):
    while len(queries):
        queries = queries[1:]
def by_unpacking(scores):
    for head in [*scores]:
        head += 1
def by_map(scores):
    return list(map(torch.sum, scores))
def fixed(scores):
    for axis in (-1, -2):
        scores = scores.sum(axis, keepdim=True)
    return scores
@triton.jit
def kernel(scores, radius):
    for offset in range(1, radius):
        pass
"""
    assert functions_with_loops(ast.parse(looping)) == [
        "by_token",
        "by_head",
        "by_query",
        "by_unpacking",
        "by_map",
    ]


def test_the_table_has_a_row_for_every_public_name():
    for name in reference.__all__:
        spec, row = getattr(reference, name), getattr(optimized, name)
        if isclass(spec):
            # a class with its own fast body is a subclass of the specification's
            assert issubclass(row, spec), name
        else:
            assert isfunction(row), name
            assert str(signature(row)) == str(signature(spec)), name
            assert getdoc(row) == getdoc(spec), name
            assert row.__name__ == name
            # on a CPU it runs its vectorised body
            assert getclosurevars(row).nonlocals["vector"] is getattr(vector, name), name


def test_a_kernel_stands_at_the_path_of_its_function():
    places = {
        name: (getattr(kernels, name).__module__, unwrap(getattr(reference, name)).__module__)
        for name in kernels.LAUNCHERS
    }
    wanted = {
        name: spec.replace("reference", kernels.__name__) for name, (_, spec) in places.items()
    }
    assert {name: place for name, (place, _) in places.items()} == wanted


def test_a_row_with_another_default_is_refused_at_import():
    spec = signature(reference.smd)
    radius = spec.parameters["radius"].replace(default=3)

    def other(*args, **kwargs):
        return reference.smd(*args, **kwargs)

    other.__signature__ = spec
    dispatch(reference.smd, other)
    parameters = (spec.parameters | {"radius": radius}).values()
    other.__signature__ = spec.replace(parameters=list(parameters))
    with pytest.raises(TypeError, match="'radius', 3"):
        dispatch(reference.smd, other)


def test_a_fast_body_says_no_default_again():
    found = {
        f"{path.name}::{body.name}"
        for path in FILES
        for body in ast.parse(path.read_text()).body
        if isinstance(body, ast.FunctionDef) and body.name in reference.__all__
        if body.args.defaults or any(body.args.kw_defaults)
    }
    assert not found


def test_a_body_that_names_no_default_has_the_specifications():
    def retain(scores, protected, *, keep, ratio, scope):
        return scores, protected, keep, ratio, scope

    row: Any = dispatch(reference.retain, retain)
    scores = torch.ones(3)
    assert row(scores, keep=1) == (scores, None, 1, None, "head")
    assert signature(retain).parameters["scope"].default == "head"


def test_without_a_gpu_no_kernel_is_imported():
    asked = "import sys, torch, optimized; optimized.smd(torch.ones(3)); print(*sys.modules)"
    found = check_output([sys.executable, "-c", asked], text=True).split()
    assert "optimized.vector" in found
    assert "optimized.kernels" not in found


def test_a_kernel_serves_only_calls_whose_tensors_are_all_on_a_gpu():
    assert not on_gpu((torch.ones(2), 1))
    assert not on_gpu((100, 0.5)), "no tensor, no GPU"


def test_a_type_checker_sees_through_the_table():
    """In CI pyright checks the type and the refused call; `assert_type` does nothing here."""
    assert_type(optimized.smd(torch.ones(3)), Tensor)
    with pytest.raises(TypeError):
        optimized.smd(torch.ones(3), radius="two")  # pyright: ignore[reportArgumentType]


def test_importing_the_reference_imports_nothing_of_the_optimized_layers():
    source = "\n".join(p.read_text() for p in Path(reference.__file__).parent.rglob("*.py"))
    names = {
        name
        for node in ast.walk(ast.parse(source))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    allowed = {"torch", "numpy", "scipy", "jaxtyping", "annotated_types", "reference"}
    allowed |= sys.stdlib_module_names
    assert {name.partition(".")[0] for name in names} <= allowed


ENDS = optimized.protected_mask(64)
BODIES: dict[str, Any] = {
    "hubkv_refine": lambda s: vector.hubkv_refine(
        s, 0.5, optimized.protected_mask(64).expand(s.shape)
    ),
    "retain": lambda s: vector.retain(s, None, keep=9, ratio=None, scope="head"),
    "graphkv_refine": lambda s: vector.graphkv_refine(s, s[..., None].expand(*s.shape, 8), 32, 2),
    "neighbours": lambda s: vector.neighbours(s, torch.zeros(2, 4, 1).long(), 3, None, False),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_trusted_body_does_no_more_on_a_cpu(name):
    scores = torch.rand(2, 4, 64, generator=torch.Generator().manual_seed(0))
    given = scores[..., None, :] if name == "neighbours" else scores
    counted = []
    for context in (nullcontext(), optimized.trusted()):
        with context, Operations() as operations:
            BODIES[name](given)
        counted.append(len(operations.found))
    assert 0 < counted[1] <= counted[0]


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
