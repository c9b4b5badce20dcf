"""Vectors: calls with known results, readable from any language (`vectors.json` of each idea).

Each vector is one call: `function`, `inputs` and `expected`. `spec` lists the equations it checks,
and `hunts` describes the bug it detects. `source` names the authors' code behind the numbers.

`spec_tests/json_values.py` describes tensors in JSON. An expected `{"sha256": "..."}` is the digest
of a large mask, one byte an entry, row by row. A vector marked `drawn` depends on our random
stream, which no paper specifies, so only our own layers are tested on it.
"""

import json
from typing import Any

import pytest

from spec_tests.index import HERE
from spec_tests.json_values import read
from spec_tests.vectors.archive import archived
from spec_tests.vectors.judge import check


def load() -> list[Any]:
    """Return every vector as a test parameter that carries its `spec` mark."""
    cases = []
    for file in sorted(HERE.rglob("vectors.json")):  # no list names them
        for case in json.loads(file.read_text()):
            name = f"{file.parent.name}-{case['id']}"
            marks = [pytest.mark.spec(*case["spec"])]
            marks += [pytest.mark.ours_only] if case.get("drawn") else []
            cases.append(pytest.param(case["function"], case, id=name, marks=marks))
    return cases


@pytest.mark.parametrize(("name", "case"), load())
def test_vector(impl, name, case):
    vector = archived(case)
    result = getattr(impl, name)(**read(vector["inputs"]))
    check(result, read(vector["expected"]), vector.get("tolerance"), case["id"])
