"""Vectors: calls with known results, readable from any language (`vectors.json` of each idea).

Each vector is one call: `function`, `inputs` and `expected`. `spec` lists the equations it checks,
and `hunts` describes the bug it detects. `source` names the authors' code behind the numbers.

A list is a tensor of float64, int64 or bool, by its elements. "inf", "-inf" and "nan" stand for
themselves. `{"shape": [2, 0], "of": "float"}` is an empty tensor. `{"uint8": [...]}` and
`{"int32": [...]}` are codes and words, and `{"int64": 4}` is a tensor of no axes.
`{"tuple": [...]}` is several tensors, and `{"Scored": {...}}` a public named tuple with those
fields. An expected `{"sha256": "..."}` is the digest of a large mask, one byte an entry, row by
row. A vector marked `drawn` depends on our random stream, which no paper specifies, so only our own
layers are tested on it.
"""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import reference
from spec_tests.accuracy import assert_close, assert_equal

KINDS = {"float": torch.float64, "int": torch.int64, "bool": torch.bool}
NAMED = {name for name in reference.__all__ if hasattr(getattr(reference, name), "_fields")}
INTEGERS = {"int64": torch.int64, "uint8": torch.uint8, "int32": torch.int32}


def load() -> list[Any]:
    """Return every vector as a test parameter that carries its `spec` mark."""
    cases = []
    here = Path(__file__).parent
    for file in sorted(here.rglob("vectors.json")):
        for case in json.loads(file.read_text()):
            name = f"{file.parent.name}-{case['id']}"
            marks = [pytest.mark.spec(*case["spec"])]
            marks += [pytest.mark.ours_only] if case.get("drawn") else []
            cases.append(pytest.param(case["function"], case, id=name, marks=marks))
    return cases


def read(value: Any) -> Any:
    """Return the tensor, tuple or number that a JSON value stands for."""
    if isinstance(value, dict) and "shape" in value:
        return torch.zeros(value["shape"], dtype=KINDS[value["of"]])
    if isinstance(value, dict) and len(value) == 1 and value.keys() <= INTEGERS.keys():
        ((name, codes),) = value.items()
        return torch.tensor(codes, dtype=INTEGERS[name])
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)) in NAMED:
        ((name, fields),) = value.items()
        return getattr(reference, name)(**read(fields))
    if isinstance(value, dict) and "tuple" in value:
        return tuple(read(part) for part in value["tuple"])
    if isinstance(value, dict):
        return {name: read(part) for name, part in value.items()}
    if isinstance(value, list):
        leaves = [number(leaf) for leaf in flatten(value)]
        kind = "bool" if isinstance(leaves[0], bool) else "int"
        if any(isinstance(leaf, float) for leaf in leaves):
            kind = "float"
        return torch.tensor(leaves, dtype=KINDS[kind]).reshape(shape(value))
    return value


def number(leaf: Any) -> Any:
    """Return a JSON leaf as a number."""
    return float(leaf) if leaf in ("inf", "-inf", "nan") else leaf


def flatten(value: Any) -> list[Any]:
    """Return the leaves of nested lists."""
    return (
        [leaf for part in value for leaf in flatten(part)] if isinstance(value, list) else [value]
    )


def shape(value: Any) -> list[int]:
    """Return the lengths of nested lists."""
    return [len(value), *shape(value[0])] if isinstance(value, list) else []


@pytest.mark.parametrize(("name", "case"), load())
def test_vector(impl, name, case):
    actual = getattr(impl, name)(**read(case["inputs"]))
    check(actual, read(case["expected"]))


def check(actual: Any, expected: Any) -> None:
    """Check a result against the expected value; an object holds fields of a named tuple."""
    if isinstance(expected, dict) and "sha256" in expected:
        digest = hashlib.sha256(actual.to(torch.uint8).numpy().tobytes()).hexdigest()
        assert digest == expected["sha256"]
    elif isinstance(expected, dict):
        for field, value in expected.items():
            check(getattr(actual, field), value)
    elif isinstance(expected, tuple):
        assert isinstance(actual, tuple), type(actual)
        for part, other in zip(actual, expected, strict=True):
            check(part, other)
    elif isinstance(expected, Tensor) and expected.is_floating_point():
        assert isinstance(actual, Tensor), type(actual)
        assert actual.shape == expected.shape, (actual.shape, expected.shape)
        assert_close(actual, expected)
    elif isinstance(expected, float):
        assert math.isclose(actual, expected) if math.isfinite(expected) else actual == expected
    else:
        assert_equal(actual, expected)
