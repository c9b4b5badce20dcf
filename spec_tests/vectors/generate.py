"""Generate vectors from the reference: `python -m spec_tests.vectors.generate FUNCTION ...`.

The vectors of these functions in the `generated.json` of their ideas are replaced; all others stay.
With `--long` it writes the vectors of long axes, which are in a file of their own.

The inputs of a function are its corners and draws from its strategy: the first few of each level,
and those that detect another mutant. A vector has the form of those in the archive
(`vectors.schema.json`): tensors with their dtype, and the tolerance of each number.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from inspect import unwrap
from itertools import repeat
from typing import Any

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from torch import Tensor

import reference
from optimized._atomic_files import write_atomically
from spec_tests.accuracy import FACTORS, Unequal, are_equal, cast, error_bounds
from spec_tests.index import HERE, source_equations
from spec_tests.inputs import CORNERS, INPUTS, REFUSALS, depends_on_random_stream
from spec_tests.json_values import NotExpressible, as_lines, read, written
from spec_tests.long_axes.inputs import BY_AGREEMENT, long_inputs
from spec_tests.report.calls import count_elements
from spec_tests.report.fault_diagnosis import outcome_of
from spec_tests.report.messages import mutants_about
from spec_tests.vectors.flags import flags_of, level_of, readings_of

DRAWS, FEW = 250, 8
"""Draws from a strategy, and vectors of a level besides those that detect another mutant."""
LARGEST = 320
"""Largest number of elements of a vector's inputs and of its result."""
LONGEST = 4000
"""Characters of the inputs of a bad call."""
ERRORS = {ValueError: "value", TypeError: "type"}
EVERY_CHECK: Any = [*HealthCheck]
Vector = dict[str, Any]
Inputs = dict[str, Any]


def generated(name: str) -> list[Vector]:
    """Return the generated vectors of a function: ordinary input, edges, refusals."""
    found = sorted(results(name), key=lambda vector: vector["level"] == "edges")
    found += refusals(name)
    return [{"id": f"{name.replace('_', '-')}-{at}"} | case for at, case in enumerate(found, 1)]


def results(name: str) -> Iterator[Vector]:
    """Yield the vectors of a function that have a result."""
    counts, detected = Counter[str](), set[str]()
    for inputs in calls(name):
        result = outcome_of(getattr(reference, name), inputs)
        if isinstance(result, Exception) or has_factors(result) or count_elements(result) > LARGEST:
            continue
        faults = [
            fault
            for fault, mutant in mutants_about(name)
            if fault not in detected
            and not is_near(outcome_of(getattr(mutant, name), inputs), result)
        ]
        made = vector(name, inputs) | ({"hunts": "; ".join(faults)} if faults else {})
        if faults or counts[made["level"]] < FEW:
            try:
                yield made | answer(name, inputs)
            except (Unequal, NotExpressible):
                continue
            counts[made["level"]] += 1
            detected.update(faults)


def calls(name: str) -> Iterator[Inputs]:
    """Yield the corners of a function, then draws from its strategy, as a program receives them."""
    seen = set[str]()
    for drawn in [*CORNERS.get(name, []), *draws(name)]:
        try:
            text = json.dumps(as_json(cast(drawn, torch.float32)))
        except NotExpressible:
            continue
        inputs = read(json.loads(text))
        small = count_elements(inputs) <= LARGEST
        if text not in seen and small and not depends_on_random_stream(name, inputs):
            yield inputs
        seen.add(text)


def draws(name: str) -> list[Inputs]:
    """Return draws from a function's strategy, the same in each run."""
    providers._get_local_constants = Constants  # as in conftest.py: no constants of loaded modules
    found: list[Inputs] = []

    @seed(0)  # `derandomize` would depend on the text of this function
    @settings(
        max_examples=DRAWS,
        derandomize=False,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=EVERY_CHECK,
    )
    @given(INPUTS[name])
    def draw(inputs: Inputs) -> None:
        found.append(inputs)

    draw()
    return found


def has_factors(result: Any) -> bool:
    """Whether a result has low-rank factors, of which only the product is unique."""
    if not isinstance(result, tuple):
        return False
    factors = [getattr(result, name) for name in FACTORS if hasattr(result, name)]
    return any(factor.numel() for factor in factors) or any(map(has_factors, result))


def is_near(value: Any, right: Any) -> bool:
    """Whether a result is right up to a thousandth."""
    if isinstance(right, tuple):
        several = isinstance(value, tuple) and len(value) == len(right)
        return several and all(map(is_near, value, right))
    if isinstance(right, Tensor) and isinstance(value, Tensor) and right.is_floating_point():
        same = value.shape == right.shape and value.dtype == right.dtype
        return same and torch.allclose(value, right, 1e-3, 1e-5, equal_nan=True)
    return are_equal(value, right)


def answer(name: str, inputs: Inputs) -> Vector:
    """Return the expected result of a call, and its tolerance if it has floats.

    Raises:
        Unequal: another rounding gives another choice, so that no single result is right.
    """
    exact, bounds = error_bounds(getattr(reference, name), inputs)
    tolerance = as_tolerance(exact, bounds)
    expected = {"expected": written(exact, exact=False)}
    return expected | ({} if tolerance is None else {"tolerance": tolerance})


def as_tolerance(exact: Any, bounds: Any) -> Any:
    """Return bounds as JSON, in the structure of the result; None for values that must be equal.

    A dictionary is some fields of a record. `bounds` may be a function of a part without parts.
    Many bounds of one tensor become the largest of them.
    """
    if isinstance(exact, tuple | dict):
        names = exact if isinstance(exact, dict) else getattr(exact, "_fields", None)
        values = exact.values() if isinstance(exact, dict) else exact
        each = repeat(bounds, len(exact)) if callable(bounds) else bounds
        parts = [as_tolerance(*pair) for pair in zip(values, each, strict=True)]
        if all(part is None for part in parts):
            return None
        return dict(zip(names, parts, strict=True)) if names else parts
    bounds = bounds(exact) if callable(bounds) else bounds
    if bounds is None or not bounds.numel() or not bounds.any():
        return None
    return rounded_up(bounds if bounds.numel() <= LARGEST else bounds.amax())


def rounded_up(bounds: Tensor) -> Any:
    """Return bounds as nested lists of two-digit numbers, rounded up."""
    if bounds.dim():
        return [rounded_up(row) for row in bounds]
    bound = float(bounds)
    near = float(f"{bound:.1e}")
    return near if near >= bound else float(f"{bound * 1.05:.1e}")


def vector(name: str, inputs: Inputs) -> Vector:
    """Return a vector without its id and its answer."""
    flags = flags_of(name, inputs)
    return {
        "spec": source_equations(name),
        "function": name,
        "origin": "generated",
        "level": level_of(flags),
        "flags": flags,
        "reading": readings_of(name),
        "inputs": as_json(inputs),
    }


def as_json(inputs: Inputs) -> Inputs:
    """Return the arguments of a call as JSON."""
    return {key: written(value, exact=False) for key, value in inputs.items()}


def refusals(name: str) -> Iterator[Vector]:
    """Yield one bad call for each argument and type of error, if JSON can express it."""
    good, refused = REFUSALS.get(name, ({}, []))
    seen = set[tuple[str, str]]()
    for refusal in refused:
        value, error = refusal.change, ERRORS[refusal.error]
        value = value(good[refusal.argument]) if callable(value) else value
        if (refusal.argument, error) in seen or (isinstance(value, float) and value.is_integer()):
            continue  # JSON has one type of number
        inputs = good | {refusal.argument: value}
        try:
            if len(json.dumps(as_json(inputs))) > LONGEST:
                continue
        except NotExpressible:
            continue
        raised = outcome_of(getattr(reference, name), read(as_json(inputs)))
        if type(raised) is refusal.error and str(raised).startswith(refusal.argument):
            seen.add((refusal.argument, error))
            bad = vector(name, inputs) | {"level": "errors", "flags": []}
            yield bad | {"expected": {"error": error}}


def long_vectors() -> Iterator[Vector]:
    """Yield the vectors of all functions with long axes."""
    for name in (n for n in reference.__all__ if n in INPUTS and n not in BY_AGREEMENT):
        for at, inputs in enumerate(long_inputs(name), 1):
            made = {"hunts": "wrong beyond a block of tokens or channels"} | answer(name, inputs)
            yield {"id": f"{name.replace('_', '-')}-long-{at}"} | vector(name, inputs) | made


def main(names: list[str]) -> None:
    """Write the generated vectors of these functions, or those of long axes."""
    if names == ["--long"]:
        write_atomically(HERE / "long_axes/generated.json", as_lines([*long_vectors()]))
        return
    if not names or not INPUTS.keys() >= {*names}:
        raise SystemExit(f"give --long, or functions that have a strategy, got {names}")
    for name in names:
        home = unwrap(getattr(reference, name)).__module__.removeprefix("reference.")
        file = HERE.joinpath(*home.split("."), "generated.json")
        before = json.loads(file.read_text()) if file.exists() else []
        found = generated(name)
        kept = [case for case in before if case["function"] != name]
        write_atomically(file, as_lines([*kept, *found]))
        print(f"{name}: {len(found)} vectors in {file.relative_to(HERE.parent)}")


if __name__ == "__main__":
    main(sys.argv[1:])
