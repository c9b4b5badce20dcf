"""Compare results with the vectors and traces of the archive."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from spec_tests.accuracy import Unequal, are_equal, is_float
from spec_tests.index import HERE
from spec_tests.json_values import read

TRACES = HERE / "vectors/traces.json"
Vector = dict[str, Any]


@cache
def generated_vectors() -> dict[str, list[Vector]]:
    """Return the generated vectors of each function that have a result."""
    found: dict[str, list[Vector]] = {}
    for file in sorted(HERE.rglob("generated.json")):
        for vector in json.loads(file.read_text()):
            if vector["level"] != "errors":
                found.setdefault(vector["function"], []).append(vector)
    return found


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
            key: results[value["step"]] if is_step(value) else read(value)
            for key, value in step["inputs"].items()
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


def is_step(value: Any) -> bool:
    """Whether an input is the result of an earlier step."""
    return isinstance(value, dict) and value.keys() == {"step"}


def check(actual: Any, expected: Any, tolerance: Any, place: str) -> None:
    """Check a result: floats within their tolerance, all else equal.

    Raises:
        Unequal: it differs; the message begins with the place.
    """
    right = are_alike(actual, expected)
    if isinstance(expected, dict) and "sha256" in expected:
        right = digest_of(actual) == expected["sha256"]
    elif isinstance(expected, dict):
        for field, part in expected.items():
            within = None if tolerance is None else tolerance[field]
            check(getattr(actual, field, None), part, within, f"{place}, {field}")
        return
    elif right and isinstance(expected, tuple):
        fields = getattr(expected, "_fields", range(len(expected)))
        for field, part, other in zip(fields, actual, expected, strict=True):
            within = None if tolerance is None else tolerance[field]
            check(part, other, within, f"{place}, {field}")
    elif right and is_number(expected):
        allowed = torch.tensor(0.0 if tolerance is None else tolerance, dtype=torch.float64)
        one, other = (torch.as_tensor(x).double() for x in (actual, expected))
        right = bool(((one == other) | ((one - other).abs() <= allowed)).all())
    elif right:
        right = are_equal(actual, expected)
    if not right and isinstance(expected, tuple):
        got = f"{len(actual)}" if isinstance(actual, tuple) else type(actual).__name__
        raise Unequal(f"{place}: must have {len(expected)} parts, got {got}", actual, expected)
    if not right:
        raise Unequal(f"{place}: {actual} is not {expected}", actual, expected)


def digest_of(mask: Tensor) -> str:
    """Return the digest of a mask: one byte an entry, row by row."""
    return hashlib.sha256(mask.to(torch.uint8).numpy().tobytes()).hexdigest()


def is_number(value: Any) -> bool:
    """Whether a value is a float or a tensor of floats, which may differ by rounding."""
    return isinstance(value, float) or is_float(value)


def are_alike(actual: Any, expected: Any) -> bool:
    """Whether a result has the expected length, or the expected shape and dtype, or type."""
    if isinstance(expected, tuple):
        return isinstance(actual, tuple) and len(actual) == len(expected)
    if isinstance(expected, Tensor):
        same = isinstance(actual, Tensor) and actual.dtype == expected.dtype
        return same and actual.shape == expected.shape
    return type(actual) is type(expected)
