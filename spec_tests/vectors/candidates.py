"""Calls of the reference that vectors may hold, and a selection of them.

A candidate is valued by what it covers: the mutants that it detects, the pairs of consecutive lines
of the reference that it runs, the flags of its inputs, and the options that it sets.
"""

import inspect
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from torch import Tensor

import reference
from spec_tests.accuracy import FACTORS, are_equal, cast
from spec_tests.inputs import CORNERS, INPUTS, depends_on_random_stream
from spec_tests.json_values import NotExpressible, read, written
from spec_tests.report.axis_names import replace_argument
from spec_tests.report.calls import count_elements
from spec_tests.report.fault_diagnosis import outcome_of
from spec_tests.report.messages import mutants_about
from spec_tests.vectors.flags import EDGES, flags_of

EVERY_CHECK: Any = [*HealthCheck]
DRAWS = 250
LARGEST = 320
"""Largest number of elements of a candidate's inputs and result."""
FAULT = 4
"""Value of a mutant relative to a branch, a flag or an option."""
SMALL = 64
"""Number of elements below which size hardly matters."""


class Candidate(NamedTuple):
    """Inputs of a call, and what they cover."""

    inputs: dict[str, Any]
    faults: frozenset[str]  # faults of the mutants with another result
    shows: frozenset[Any]
    size: int

    def worth(self, new: int) -> float:
        """Return the value of new coverage for its size; ordinary input counts twice."""
        return new * (2 if EDGES.isdisjoint(self.shows) else 1) / (SMALL + self.size)


def candidates(name: str) -> Iterator[Candidate]:
    """Yield candidates from a function's corners and from its strategy."""
    seen = set[str]()
    for drawn in [*CORNERS.get(name, []), *draws(name)]:
        try:
            text = json.dumps(as_json(cast(drawn, torch.float32)))
        except NotExpressible:
            continue
        inputs = read(json.loads(text))  # as a program receives them
        small = count_elements(inputs) <= LARGEST
        if text not in seen and small and not depends_on_random_stream(name, inputs):
            seen.add(text)
            yield from candidate(name, inputs)


def candidate(name: str, inputs: dict[str, Any]) -> Iterator[Candidate]:
    """Yield the candidate with these inputs, unless JSON cannot express its result."""
    try:
        result, branches = traced(getattr(reference, name), inputs)
    except (ValueError, RuntimeError):  # a draw for another dtype may be refused
        return
    if has_factors(result) or count_elements((result,)) > LARGEST:
        return
    faults = frozenset(found_faults(name, inputs, result))
    shows = {*branches, *faults, *flags_of(name, inputs), *options(name, inputs, result)}
    yield Candidate(inputs, faults, frozenset(shows), count_elements(inputs))


def as_json(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call as JSON."""
    return {key: written(value, exact=False) for key, value in inputs.items()}


def draws(name: str) -> list[dict[str, Any]]:
    """Return draws from a function's strategy, the same in each run."""
    providers._get_local_constants = Constants  # as in conftest.py: no constants of loaded modules
    found: list[dict[str, Any]] = []

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
    def draw(inputs: dict[str, Any]) -> None:
        found.append(inputs)

    draw()
    return found


def ranked(found: list[Candidate], fewest: int) -> Iterator[tuple[Candidate, list[str]]]:
    """Yield candidates in order of value for their size, and the faults that each adds.

    It ends when no candidate adds anything, but not before `fewest` are yielded.
    """
    left, shown, count = [*found], set[Any](), 0
    while left:
        news = [len(one.shows - shown) + FAULT * len(one.faults - shown) for one in left]
        if not any(news):
            if count >= fewest:
                return
            news = [1 + len(one.faults) for one in left]
        values = [one.worth(new) for one, new in zip(left, news, strict=True)]
        best = left.pop(values.index(max(values)))
        yield best, sorted(best.faults - shown)
        shown |= best.shows
        count += 1


def found_faults(name: str, inputs: dict[str, Any], right: Any) -> Iterator[str]:
    """Yield the faults of the mutants with a clearly different result."""
    for fault, module in mutants_about(name):
        if not is_near(outcome_of(getattr(module, name), inputs), right):
            yield fault


def is_near(value: Any, right: Any) -> bool:
    """Whether a result is right up to a thousandth."""
    if isinstance(right, tuple):
        several = isinstance(value, tuple) and len(value) == len(right)
        return several and all(map(is_near, value, right))
    if isinstance(right, Tensor) and isinstance(value, Tensor) and right.is_floating_point():
        same = value.shape == right.shape and value.dtype == right.dtype
        return same and torch.allclose(value, right, 1e-3, 1e-5, equal_nan=True)
    return are_equal(value, right)


def traced(
    function: Callable[..., Any], inputs: dict[str, Any]
) -> tuple[Any, set[tuple[str, int, int]]]:
    """Return the result of a call, and the pairs of consecutive lines that it runs."""
    home, pairs = str(Path(reference.__file__).parent), set[tuple[str, int, int]]()

    def start(frame: Any, _: str, __: Any) -> Any:
        file, last = frame.f_code.co_filename, frame.f_lineno
        if not file.startswith(home) or "contract" in file:
            return None

        def step(frame: Any, event: str, _: Any) -> Any:
            nonlocal last
            if event == "line":
                pairs.add((file, last, frame.f_lineno))
                last = frame.f_lineno
            return step

        return step

    before = sys.gettrace()
    sys.settrace(start)
    try:
        return function(**inputs), pairs
    finally:
        sys.settrace(before)


def options(name: str, inputs: dict[str, Any], right: Any) -> Iterator[str]:
    """Yield the options and settings without which a call has another result."""
    for option, changed in without_each_option(name, inputs):
        if not is_near(outcome_of(getattr(reference, name), changed), right):
            yield option


def without_each_option(name: str, inputs: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each option of a call, and the call with its default, or with query heads h mod K."""
    for key, parameter in inspect.signature(getattr(reference, name)).parameters.items():
        if key in inputs and parameter.default is not parameter.empty:
            yield key, {other: value for other, value in inputs.items() if other != key}
        for field, default in getattr(inputs.get(key), "_field_defaults", {}).items():
            yield f"{key}.{field}", replace_argument(inputs, key, field, default)
    queries, cache = inputs.get("queries"), inputs.get("cache")
    keys = inputs.get("keys", getattr(cache, "residual_keys", None))
    if isinstance(queries, Tensor) and isinstance(keys, Tensor) and keys.dim() > 2:
        heads = torch.arange(queries.shape[-3])
        dealt = heads.view(keys.shape[-3] or 1, -1).mT.flatten()
        yield "h mod K", inputs | dict(queries=queries.index_select(-3, dealt))


def has_factors(result: Any) -> bool:
    """Whether a result has low-rank factors, of which only the product is unique."""
    if not isinstance(result, tuple):
        return False
    fields: dict[str, Any] = getattr(result, "_asdict", dict)()
    pair = [fields[name] for name in FACTORS if name in fields]
    return any(factor.numel() for factor in pair) or any(map(has_factors, result))
