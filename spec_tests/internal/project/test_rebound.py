"""A function that calls one with a kernel is rebound to the kernel."""

from inspect import isfunction, unwrap

import pytest

import reference
from optimized import kernels, vector
from spec_tests.internal.project.loop_analysis import reached

FUNCTIONS = [name for name in reference.__all__ if isfunction(getattr(reference, name))]


def slow_calls(name: str, module: object) -> set[str]:
    """Return the functions with a kernel whose vectorised body a function or its helper calls."""
    bodies = {id(getattr(vector, other)): other for other in kernels.__all__ if other != name}
    return {bodies[id(f)] for f in reached(unwrap(getattr(module, name))) if id(f) in bodies}


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n not in kernels.LAUNCHERS])
def test_a_function_calls_the_kernels_of_the_functions_below_it(name):
    module = kernels if name in kernels.__all__ else vector
    assert not slow_calls(name, module), f"rebind it in optimized/kernels, at the path of {name}"


@pytest.mark.skipif(not kernels.__all__, reason="Triton is not installed")
def test_the_checker_sees_a_body_where_there_is_a_kernel():
    assert slow_calls("refine", vector) >= {"hubkv_refine", "graphkv_refine"}
    assert slow_calls("hubkv_compress", vector) >= {"evict", "retain"}
