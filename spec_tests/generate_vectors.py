"""Generate vectors from the reference: `python -m spec_tests.generate_vectors [FUNCTION ...]`.

For each function the inputs come from its strategy and its corners. Of many draws it keeps few: a
kept one finds a mutant, reaches a branch of the reference, or has a property or an option, that the
others do not. The file `generated.json` of an idea holds them; `spec_tests.vectors` archives it.
"""

import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from hypothesis import HealthCheck, Phase, given, settings
from torch import Tensor

import reference
from spec_tests.accuracy import FACTORS, Unequal, are_equal, cast, error_magnitudes
from spec_tests.index import HERE, source_equations
from spec_tests.inputs import CORNERS, INPUTS, REFUSALS, depends_on_random_stream
from spec_tests.json_values import NotExpressible, written
from spec_tests.report.calls import count_elements
from spec_tests.report.fault_localization import asked
from spec_tests.report.messages import mutants_about
from spec_tests.vector_flags import EDGES, flags_of, level_of, readings_of

DRAWS, FEWEST, MOST = 200, 12, 20
SIZE = 512
"""Elements of the largest inputs that are kept."""
ERRORS = {ValueError: "value", TypeError: "type"}


class Candidate(NamedTuple):
    """Inputs of a call, and what they show: branches, properties and options."""

    inputs: dict[str, Any]
    faults: frozenset[str]  # of the mutants that give another answer
    shows: frozenset[Any]
    size: int

    @property
    def is_ordinary(self) -> bool:
        """Whether it is at the level `values`."""
        return EDGES.isdisjoint(self.shows)


def generated(name: str) -> list[dict[str, Any]]:
    """Return the generated vectors of a function, results first and refusals last."""
    vectors = []
    for inputs, faults in chosen(candidates(name)):
        flags = flags_of(name, inputs)
        try:
            exact, magnitude = error_magnitudes(bare(name), inputs)
            answer = {"expected": written(cast(exact, torch.float32), exact=False)}
            answer |= {"magnitude": written(rounded_up(magnitude), exact=False)}
            answer |= {"hunts": "; ".join(faults)} if faults else {}
        except (Unequal, NotExpressible):
            continue
        vectors.append(vector(name, inputs, level_of(flags), flags) | answer)
    for inputs, error in refused(name):
        vectors.append(vector(name, inputs, "errors", []) | {"expected": {"error": error}})
    return [{"id": f"{name.replace('_', '-')}-{at}"} | one for at, one in enumerate(vectors, 1)]


def vector(name: str, inputs: dict[str, Any], level: str, flags: list[str]) -> dict[str, Any]:
    """Return a vector without its answer."""
    return {
        "spec": source_equations(name),
        "function": name,
        "origin": "generated",
        "level": level,
        "flags": flags,
        "reading": readings_of(name),
        "inputs": {key: written(value, exact=False) for key, value in inputs.items()},
    }


def candidates(name: str) -> Iterator[Candidate]:
    """Yield the corners of a function and draws of its strategy that a vector can hold."""
    seen = set[str]()
    for drawn in [*CORNERS.get(name, []), *draws(name)]:
        inputs = cast(drawn, torch.float32)
        try:
            text = json.dumps({key: written(value, exact=False) for key, value in inputs.items()})
        except NotExpressible:
            continue
        size = count_elements(inputs)
        if text in seen or size > SIZE or depends_on_random_stream(name, inputs):
            continue
        seen.add(text)
        try:
            result, branches = traced(bare(name), inputs)
        except (ValueError, RuntimeError):  # a draw at another dtype may be refused
            continue
        if not has_factors(result):
            faults = frozenset(found_faults(name, inputs, result))
            shows = branches | faults | {*flags_of(name, inputs)} | {*options(name, inputs)}
            yield Candidate(inputs, faults, frozenset(shows), size)


def draws(name: str) -> list[dict[str, Any]]:
    """Return the draws of a function's strategy, the same in each run."""
    found: list[dict[str, Any]] = []

    @settings(
        max_examples=DRAWS,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(INPUTS[name])
    def draw(inputs: dict[str, Any]) -> None:
        found.append(inputs)

    draw()
    return found


def chosen(found: Iterable[Candidate]) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Yield few inputs that show all that the candidates show, and the faults each adds.

    The one that adds most comes next, an ordinary one before others, a small one before large ones.
    """
    left, shown, kept = [*found], set[Any](), 0
    while left and kept < MOST:
        news = [(len(one.shows - shown), one.is_ordinary, -one.size) for one in left]
        if not max(news)[0]:
            if kept >= FEWEST:
                break
            news = [(one.is_ordinary, len(one.faults), -one.size) for one in left]
        best = left.pop(news.index(max(news)))
        yield best.inputs, sorted(best.faults - shown)
        shown |= best.shows
        kept += 1


def found_faults(name: str, inputs: dict[str, Any], right: Any) -> Iterator[str]:
    """Yield the faults of the mutants that give a clearly different answer."""
    for fault, module in mutants_about(name):
        if not is_near(asked(getattr(module, name), inputs), right):
            yield fault


def is_near(value: Any, right: Any) -> bool:
    """Whether a result is the right one up to a thousandth."""
    if isinstance(right, tuple):
        several = isinstance(value, tuple) and len(value) == len(right)
        return several and all(map(is_near, value, right))
    if isinstance(right, Tensor) and isinstance(value, Tensor) and right.is_floating_point():
        same = value.shape == right.shape and value.dtype == right.dtype
        return same and torch.allclose(value, right, 1e-3, 1e-5, equal_nan=True)
    return are_equal(value, right)


def refused(name: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield one bad call for each argument and type of error."""
    good, refusals = REFUSALS.get(name, ({}, []))
    seen = set[tuple[str, str]]()
    for refusal in refusals:
        change, error = refusal.change, ERRORS[refusal.error]
        value = change(good[refusal.argument]) if callable(change) else change
        inputs = good | {refusal.argument: value}
        integral = isinstance(value, float) and value.is_integer()
        try:
            for given_value in inputs.values():
                written(given_value, exact=False)
        except NotExpressible:
            continue
        if not integral and (refusal.argument, error) not in seen:
            seen.add((refusal.argument, error))
            yield inputs, error


def traced(
    function: Callable[..., Any], inputs: dict[str, Any]
) -> tuple[Any, set[tuple[str, int, int]]]:
    """Return the result of a call, and the pairs of lines that follow each other in it."""
    home, pairs = str(Path(reference.__file__).parent), set[tuple[str, int, int]]()

    def start(frame: Any, _: str, __: Any) -> Any:
        file, last = frame.f_code.co_filename, frame.f_lineno
        if not file.startswith(home):
            return None

        def step(frame: Any, event: str, _: Any) -> Any:
            nonlocal last
            if event == "line":
                pairs.add((file, last, frame.f_lineno))
                last = frame.f_lineno
            return step

        return step

    sys.settrace(start)
    try:
        return function(**inputs), pairs
    finally:
        sys.settrace(None)


def bare(name: str) -> Callable[..., Any]:
    """Return a function of the reference."""
    return getattr(reference, name)


def options(name: str, inputs: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the words and flags that a call sets, as pairs of argument and value."""
    for key, value in inputs.items():
        if isinstance(value, bool | str) or value is None:
            yield key, repr(value)
    for key in inspect.signature(bare(name)).parameters.keys() - inputs.keys():
        yield key, "left out"


def has_factors(result: Any) -> bool:
    """Whether a result holds low-rank factors, of which only the product is unique."""
    if not isinstance(result, tuple):
        return False
    return {*getattr(result, "_fields", ())} >= FACTORS or any(map(has_factors, result))


def rounded_up(value: Any) -> Any:
    """Return magnitudes with three digits, none smaller than it was."""
    if isinstance(value, tuple):
        return tuple(map(rounded_up, value))
    if isinstance(value, Tensor):
        step = 10 ** (value.clamp(min=1e-300).log10().floor() - 2)
        up = (value / step).ceil() * step
        flat = [float(f"{x:.3g}") for x in up.flatten().tolist()]
        return torch.tensor(flat, dtype=torch.float64).reshape(value.shape)
    return value


def file_of(name: str) -> Path:
    """Return the file of the generated vectors of a function's idea."""
    home = inspect.unwrap(bare(name)).__module__.removeprefix("reference.")
    return HERE.joinpath(*home.split(".")) / "generated.json"


def main(names: list[str]) -> None:
    """Write the generated vectors of these functions, or of all."""
    files: dict[Path, dict[str, list[Any]]] = {}
    for name in reference.__all__:
        if name in INPUTS and (not names or name in names):
            files.setdefault(file_of(name), {})[name] = generated(name)
    for file, found in files.items():
        before = json.loads(file.read_text()) if file.exists() else []
        kept = [one for one in before if one["function"] not in found]
        lines = [json.dumps(one) for one in [*kept, *(v for some in found.values() for v in some)]]
        file.write_text("[\n" + ",\n".join(lines) + "\n]\n")
        print(f"{file.relative_to(HERE)}: {len(lines)}")


if __name__ == "__main__":
    main(sys.argv[1:])
