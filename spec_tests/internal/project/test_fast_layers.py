"""The fast layers call no slow body of the specification, and import nothing from above them."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

import ast
import pickle
import re
import sys
from collections.abc import Iterable
from inspect import isfunction, unwrap
from pathlib import Path
from types import FunctionType
from typing import Any, assert_type

import pytest
import torch
from torch import Tensor

import optimized
import reference
from optimized import kernels, vector
from optimized._dispatch import modules
from optimized.vector.graphkv.decay import multiply_at
from optimized.vector.graphkv.graph import sum_of_bits
from spec_tests.internal.project.run_python import run_python
from spec_tests.report.messages import names_read

ROOT = Path(optimized.__file__).parents[1]


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
            waiting += [function.__globals__.get(name) for name in names_read(function)]
    return found


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


def test_a_body_that_has_a_kernel_runs_it_within_other_bodies():
    inner = {
        name
        for home in modules("optimized.vector")
        for name, body in vars(home).items()
        if isfunction(body) and "without_kernel" in vars(body)
    }
    assert inner == set(kernels.__all__) or not kernels.__all__, "decorate it with kernel_on_gpu"


def imports_of(folder: str) -> set[str]:
    """Return the full names that the files of a folder import."""
    trees = (ast.parse(path.read_text()) for path in ROOT.glob(f"{folder}/**/*.py"))
    return {
        f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
        for node in (node for tree in trees for node in ast.walk(tree))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }


@pytest.mark.parametrize(
    ("folder", "above"),
    [
        ("optimized", r"spec_tests|docs"),
        ("optimized/models", r"optimized\.(study|tiny|bench|counts)"),
        ("optimized/vector", r"optimized\.(study|tiny|bench|counts)"),
        ("optimized/kernels", r"optimized\.(study|tiny|bench|counts)"),
    ],
)
def test_no_arrow_runs_up(folder, above):
    assert not {name for name in imports_of(folder) if re.match(rf"({above})\b", name)}


def test_the_reference_imports_nothing_of_other_layers():
    allowed = {"torch", "numpy", "scipy", "jaxtyping", "annotated_types", "reference"}
    names = {name.partition(".")[0] for name in imports_of("reference")}
    assert names <= allowed | sys.stdlib_module_names


@pytest.mark.parametrize("layer", [vector, kernels])
def test_a_body_stands_at_the_path_of_its_function(layer):
    for name in layer.__all__:
        spec, body = unwrap(getattr(reference, name)), getattr(layer, name)
        path = spec.__module__.replace("reference", layer.__name__)
        assert body is spec or body.__module__ == path, name


def test_a_function_can_be_pickled():
    for name in reference.__all__:
        assert pickle.loads(pickle.dumps(getattr(optimized, name))) == getattr(optimized, name)


def test_without_a_gpu_no_kernel_is_imported():
    code = "import sys, torch, optimized; optimized.smd(torch.ones(3)); print(*sys.modules)"
    found = run_python("-c", code).stdout.split()
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
    indices = torch.rand(3, 5, 50).argsort(-1)[..., :7]
    factor, numbers = torch.rand(3, 50).double(), torch.rand(3, 5, 7).double()
    scattered = multiply_at(factor, indices, numbers)
    monkeypatch.setattr(torch.Tensor, "is_cpu", False)
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.equal(multiply_at(factor, indices, numbers), scattered)
