"""Compare results with the vectors and traces of the archive."""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

from spec_tests.accuracy import Unequal, are_equal, is_float, same_types_and_shapes
from spec_tests.index import HERE
from spec_tests.json_values import read

TRACES = HERE / "vectors/traces.json"
Vector = dict[str, Any]
WITH_RESULT = re.compile(r'"function":"(\w+)","origin":"generated","level":"(?!errors")')
"""The part of a line that names its function; to parse all lines takes longer than to mark one."""


@cache
def generated_lines() -> dict[str, list[str]]:
    """Return the lines of the generated vectors of each function that have a result."""
    found: dict[str, list[str]] = {}
    for file in sorted(HERE.rglob("generated.json")):
        for line in file.read_text().splitlines():
            if named := WITH_RESULT.search(line):
                found.setdefault(named[1], []).append(line.rstrip(","))
    return found


def generated_vectors(name: str) -> list[Vector]:
    """Return the generated vectors of a function that have a result."""
    return [*map(json.loads, generated_lines().get(name, []))]


@cache
def traces() -> list[Vector]:
    """Return the traces of caches."""
    return json.loads(TRACES.read_text())


def judge_vector(module: Any, vector: Vector) -> None:
    """Call a function of a module, and check its result."""
    with claiming(f"vector {vector['id']}"):
        result = getattr(module, vector["function"])(**read(vector["inputs"]))
        check(result, read(vector["expected"]), vector.get("tolerance"), vector["id"])


def judge_trace(module: Any, trace: Vector) -> None:
    """Make the calls of a trace on the results before them, and check the state after each."""
    results = list[Any]()
    for at, step in enumerate(trace["steps"]):
        inputs = {
            key: results[x["step"]] if isinstance(x, dict) and "step" in x else read(x)
            for key, x in step["inputs"].items()
        }
        place = f"step {at} of {trace['id']}, {step['function']}"
        with claiming(place):
            results.append(getattr(module, step["function"])(**inputs))
            check(results[-1], read(step["expected"]), step.get("tolerance"), place)


@contextmanager
def claiming(claim: str) -> Iterator[None]:
    """Add to an error the claim that the report prints."""
    try:
        yield
    except Exception as error:
        vars(error)["claim"] = claim
        raise


def check(actual: Any, expected: Any, tolerance: Any, place: str) -> None:
    """Check a result: floats within their tolerance, all else equal.

    Raises:
        Unequal: it differs; the message begins with the place.
    """
    if isinstance(expected, dict) and "sha256" in expected:
        rows = actual.to(torch.uint8).numpy().tobytes()  # one byte an entry, row by row
        right = hashlib.sha256(rows).hexdigest() == expected["sha256"]
    elif isinstance(expected, dict | tuple):
        for field, part, other in parts(actual, expected, place):
            named = isinstance(tolerance, dict)  # which may lack fields of extensions
            within = tolerance.get(field) if named else tolerance and tolerance[field]
            check(part, other, within, f"{place}, {field}")
        return
    elif same_types_and_shapes(actual, expected) and (
        isinstance(expected, float) or is_float(expected)
    ):
        allowed = torch.tensor(0.0 if tolerance is None else tolerance, dtype=torch.float64)
        result, exact = (torch.as_tensor(x).double() for x in (actual, expected))
        right = bool(((result == exact) | ((result - exact).abs() <= allowed)).all())
    else:
        right = are_equal(actual, expected)
    if not right:
        raise Unequal(f"{place}: {actual} is not {expected}", actual, expected)


def parts(actual: Any, expected: Any, place: str) -> list[tuple[Any, Any, Any]]:
    """Return name, actual and expected value of each part; a dictionary holds some fields."""
    if isinstance(expected, dict):
        return [(field, getattr(actual, field, None), part) for field, part in expected.items()]
    if not isinstance(actual, tuple) or len(actual) != len(expected):
        got = len(actual) if isinstance(actual, tuple) else type(actual).__name__
        raise Unequal(f"{place}: must have {len(expected)} parts, got {got}", actual, expected)
    fields = getattr(expected, "_fields", range(len(expected)))
    return [*zip(fields, actual, expected, strict=True)]
