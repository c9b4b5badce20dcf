"""Generate vectors from the reference: `python -m spec_tests.vectors.generate [FUNCTION ...]`.

With `--long` it generates those of long axes, which are in a file of their own.

The inputs of each function come from its strategy and its corners; the most valuable few are kept.
The file `generated.json` of an idea holds them. A vector has the form of those in the archive
(`vectors.schema.json`): tensors with their dtype, and the tolerance of each number.
"""

import json
import sys
import time
from collections.abc import Iterator
from inspect import unwrap
from itertools import repeat
from pathlib import Path
from typing import Any

from torch import Tensor

import reference
from optimized._atomic_files import write_atomically
from spec_tests.accuracy import Unequal, error_bounds
from spec_tests.index import HERE, source_equations
from spec_tests.inputs import INPUTS, REFUSALS
from spec_tests.json_values import NotExpressible, as_lines, read, written
from spec_tests.long_axes.inputs import BY_AGREEMENT, long_inputs
from spec_tests.report.fault_diagnosis import outcome_of
from spec_tests.strategies import Refusal
from spec_tests.vectors.candidates import LARGEST, Candidate, as_json, candidates, ranked
from spec_tests.vectors.flags import flags_of, level_of, readings_of

FEWEST, MOST = 12, 20
"""Least and greatest number of results among the vectors of a function. Beyond the greatest only
those that detect another mutant, up to twice as many."""
LARGEST_SUM = 1500
"""Approximate number of elements of the inputs of all vectors of a function; twice as many as
above."""
FEW = 20
"""Number of good calls, besides that of the strategy, from which bad calls are made."""
LONGEST = 4000
"""Characters of the inputs of a bad call."""
ERRORS = {ValueError: "value", TypeError: "type"}
Vector = dict[str, Any]
Inputs = dict[str, Any]


def generated(name: str) -> list[Vector]:
    """Return the generated vectors of a function: ordinary input, edges, refusals."""
    drawn = [*candidates(name)]
    found = sorted(results(name, drawn), key=lambda vector: vector["level"] == "edges")
    found += refusals(name, [one.inputs for one in sorted(drawn, key=lambda one: one.size)])
    return [{"id": f"{name.replace('_', '-')}-{at}"} | one for at, one in enumerate(found, 1)]


def results(name: str, drawn: list[Candidate]) -> Iterator[Vector]:
    """Yield the vectors of a function that have a result."""
    count = size = 0
    for one, faults in ranked(drawn, FEWEST):
        if count == 2 * MOST or size > 2 * LARGEST_SUM:
            return
        enough = count >= MOST or (size > LARGEST_SUM and count >= FEWEST)
        if enough and not faults:
            continue
        try:
            said = answer(name, one.inputs)
        except (Unequal, NotExpressible):
            continue
        hunts = {"hunts": "; ".join(faults)} if faults else {}
        yield vector(name, one.inputs) | hunts | said
        count, size = count + 1, size + one.size


def answer(name: str, inputs: dict[str, Any]) -> Vector:
    """Return the expected result of a call, and its tolerance if it has floats.

    Raises:
        Unequal: another rounding gives another choice, so that no single result is right.
    """
    exact, bounds = error_bounds(getattr(reference, name), inputs)
    tolerance = as_tolerance(exact, bounds)
    said = {"expected": written(exact, exact=False)}
    return said | ({} if tolerance is None else {"tolerance": tolerance})


def as_tolerance(exact: Any, bounds: Any) -> Any:
    """Return bounds as JSON, in the structure of the result; None for values that must be equal.

    Args:
        exact: the result; a dictionary holds some fields of a record.
        bounds: the bounds in the same structure, or a function of a part without parts. Many of
            one tensor become the largest of them.
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


def vector(name: str, inputs: dict[str, Any]) -> Vector:
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


def refusals(name: str, calls: list[Inputs]) -> Iterator[Vector]:
    """Yield one bad call for each argument and type of error, from good calls, small ones first."""
    good, refused = REFUSALS.get(name, ({}, []))
    seen = set[tuple[str, str]]()
    for refusal in refused:
        key = refusal.argument, ERRORS[refusal.error]
        if key in seen:
            continue
        for call in [*calls[:FEW], good]:
            inputs = spoilt(call, refusal)
            if inputs and is_refused(name, inputs, refusal):
                seen.add(key)
                bad = vector(name, inputs) | {"level": "errors", "flags": []}
                yield bad | {"expected": {"error": key[1]}}
                break


def spoilt(call: Inputs, refusal: Refusal) -> Inputs | None:
    """Return a call with a bad argument, or None if there is none that JSON can express."""
    value = refusal.change
    if callable(value):
        if not isinstance(call.get(refusal.argument), Tensor | tuple):
            return None
        try:
            value = value(call[refusal.argument])
        except (IndexError, RuntimeError, ValueError, AttributeError):  # too small for a bad value
            return None
    if isinstance(value, float) and value.is_integer():  # JSON has one type of number
        return None
    try:
        inputs = call | {refusal.argument: value}
        return inputs if len(json.dumps(as_json(inputs))) <= LONGEST else None
    except NotExpressible:
        return None


def is_refused(name: str, inputs: Inputs, refusal: Refusal) -> bool:
    """Whether the reference refuses a call for its bad argument."""
    error = outcome_of(getattr(reference, name), read(as_json(inputs)))
    return type(error) is refusal.error and str(error).startswith(refusal.argument)


def long_vectors(name: str) -> Iterator[Vector]:
    """Yield the vectors of a function with long axes."""
    for at, inputs in enumerate(long_inputs(name), 1):
        made = {"hunts": "wrong beyond a block of tokens or channels"} | answer(name, inputs)
        yield {"id": f"{name.replace('_', '-')}-long-{at}"} | vector(name, inputs) | made


def file_of(name: str) -> Path:
    """Return the file of the generated vectors of a function's idea."""
    home = unwrap(getattr(reference, name)).__module__.removeprefix("reference.")
    return HERE.joinpath(*home.split(".")) / "generated.json"


def main(names: list[str]) -> None:
    """Write the generated vectors of these functions, or of all, or those of long axes."""
    if names == ["--long"]:
        asked = (n for n in reference.__all__ if n in INPUTS and n not in BY_AGREEMENT)
        found = [made for name in asked for made in long_vectors(name)]
        write_atomically(HERE / "long_axes/generated.json", as_lines(found))
        return
    for name in reference.__all__:
        if name in INPUTS and (not names or name in names):
            began, file, found = time.thread_time(), file_of(name), generated(name)
            before = json.loads(file.read_text()) if file.exists() else []
            kept = [one for one in before if one["function"] != name]
            write_atomically(file, as_lines([*kept, *found]))
            print(f"{name}: {len(found)}, {time.thread_time() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
