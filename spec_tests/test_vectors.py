"""Vectors: calls with known results, readable from any language (`vectors.json` of each idea).

Each vector is one call: `function`, `inputs` and `expected`. `spec` lists the equations it checks,
and `hunts` describes the bug it detects. `source` names the authors' code behind the numbers.

`spec_tests/json_values.py` describes tensors in JSON. An expected `{"sha256": "..."}` is the digest
of a large mask, one byte an entry, row by row. A vector marked `drawn` depends on our random
stream, which no paper specifies, so only our own layers are tested on it.
"""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.json_values import read


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
