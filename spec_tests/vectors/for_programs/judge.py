"""Compare a Python module with the archive: `python judge.py [MODULE] [options]`.

It needs the standard library alone. A tensor is nested lists, and a record is a dictionary of its
fields, so dtypes are not compared. The module's functions have the names and arguments of the
vectors. A function refuses a call by ValueError or TypeError, and skips it by NotImplementedError.
MODULE is `example` unless given; the levels are `values`, `edges` and `errors`. With `--own-caches`
the caches of traces may have any form, and only the steps that read them are compared.
"""

import argparse
import hashlib
import importlib
import json
import sys
from contextlib import suppress
from pathlib import Path

ARCHIVE = Path(__file__).resolve().parent.parent
LEVELS = ("values", "edges", "errors")
DTYPES = {"float64", "float32", "float16", "bfloat16"}
DTYPES |= {"int64", "int32", "int16", "int8", "uint8", "bool"}
WORDS = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}


def read(value):
    """Return the value of a JSON value."""
    if isinstance(value, str):
        return WORDS.get(value, value)
    if isinstance(value, list):
        return [read(part) for part in value]
    if not isinstance(value, dict):
        return value
    if "shape" in value:
        return empty(value["shape"])
    if len(value) == 1:
        ((name, inner),) = value.items()
        if name in DTYPES or name == "tuple" or name[0].isupper():
            return read(inner)
    return {name: read(part) for name, part in value.items()}


def empty(shape):
    """Return the lists of a tensor without elements."""
    return [empty(shape[1:]) for _ in range(shape[0])] if shape else 0


def differences(actual, expected, tolerance, place=""):
    """Yield the places at which a result is wrong."""
    if isinstance(expected, dict) and "sha256" in expected:
        if hashlib.sha256(bytes(flat(actual))).hexdigest() != expected["sha256"]:
            yield place, "another digest", expected
    elif isinstance(expected, dict):
        for name, part in expected.items():
            if not isinstance(actual, dict) or name not in actual:
                yield f"{place}.{name}", "missing", part
            else:
                within = (tolerance or {}).get(name)
                yield from differences(actual[name], part, within, f"{place}.{name}")
    elif isinstance(expected, list):
        if not isinstance(actual, list | tuple) or len(actual) != len(expected):
            yield place, actual, expected
            return
        bounds = tolerance if isinstance(tolerance, list) else [tolerance] * len(expected)
        for at, (one, other, within) in enumerate(zip(actual, expected, bounds, strict=True)):
            yield from differences(one, other, within, f"{place}[{at}]")
    elif isinstance(expected, int | float) and isinstance(actual, int | float):
        both_nan = actual != actual and expected != expected
        if not (both_nan or actual == expected or abs(actual - expected) <= (tolerance or 0)):
            yield place, actual, expected
    elif actual != expected:
        yield place, actual, expected


def flat(value):
    """Return the elements of nested lists."""
    return [leaf for part in value for leaf in flat(part)] if isinstance(value, list) else [value]


def judged(module, case, inputs, own_caches=False):
    """Return the result of a call, and a line on its difference from the expected one, or None."""
    expected = case["expected"]
    refusal = isinstance(expected, dict) and "error" in expected
    try:
        result = getattr(module, case["function"])(**inputs)
    except (ValueError, TypeError) as error:
        return None, None if refusal else f"refused: {error}"
    except NotImplementedError:
        raise
    except Exception as error:
        return None, f"raised {error!r}"
    if refusal:
        return result, f"must be refused, got {result}"
    if own_caches and is_cache(expected):
        return result, None
    for place, got, right in differences(result, read(expected), case.get("tolerance")):
        return result, f"result{place} must be {right}, got {got}"
    return result, None


def is_cache(expected):
    """Whether a result is the state of a cache."""
    return isinstance(expected, dict) and any(name.endswith("Cache") for name in expected)


def judge_vectors(module, file, level):
    """Yield the id of each vector of a file that the module offers, and its difference or None."""
    for case in json.loads(file.read_text(encoding="utf-8")):
        if hasattr(module, case["function"]) and not case.get("drawn") and case["level"] in level:
            with suppress(NotImplementedError):  # the call is skipped
                yield case["id"], judged(module, case, read(case["inputs"]))[1]


def judge_trace(module, trace, own_caches):
    """Yield the place of each step up to the first wrong one, and its difference or None.

    A step whose function the module lacks is skipped, unless a later one needs its result.
    """
    results = {}
    for at, step in enumerate(trace["steps"]):
        inputs = step["inputs"]
        places = {k: v["step"] for k, v in inputs.items() if isinstance(v, dict) and "step" in v}
        if not hasattr(module, step["function"]) or not results.keys() >= {*places.values()}:
            continue
        given = {k: results[places[k]] if k in places else read(v) for k, v in inputs.items()}
        results[at], wrong = judged(module, step, given, own_caches)
        yield f"{trace['id']}, step {at} ({step['function']})", wrong
        if wrong:
            return


def main():
    """Print the differences and the counts."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("module", nargs="?", default="example")
    options.add_argument("--level", choices=LEVELS, default="edges")
    options.add_argument("--own-caches", action="store_true")
    given = options.parse_args()
    sys.path.insert(0, "")
    module, level = importlib.import_module(given.module), LEVELS[: LEVELS.index(given.level) + 1]
    found = {"vectors": [], "steps of traces": []}
    for file in sorted((ARCHIVE / "vectors").rglob("*.json")):
        found["vectors"] += judge_vectors(module, file, level)
    for file in sorted((ARCHIVE / "traces").glob("*.json")):
        trace = json.loads(file.read_text(encoding="utf-8"))
        found["steps of traces"] += judge_trace(module, trace, given.own_caches)
    if not found["vectors"]:
        return f"{given.module} offers no function of the archive"
    for kind, outcomes in found.items():
        wrong = [f"{place}: {said}" for place, said in outcomes if said]
        print(*wrong, f"{kind}: {len(outcomes) - len(wrong)} right, {len(wrong)} wrong", sep="\n")
    return any(said for outcomes in found.values() for _, said in outcomes)


if __name__ == "__main__":
    sys.exit(main())
