"""The valid inputs of every public function, and the arguments that it must refuse.

The `strategies.py` of each idea holds, for each of its functions:

- a Hypothesis strategy, under the function's name or in `INPUTS`, where it may be a dictionary with
  one for each argument;
- `CORNERS`: inputs for branches that random examples rarely reach;
- `EXTENDED`: strategies with settings of our extensions, which other modules need not have;
- `GOOD`: one valid call;
- `REFUSALS`: bad arguments that annotations do not exclude; `from_signature` derives the others;
- `DRAWN`: a predicate of the inputs whose result depends on a random stream;
- `SCORED`, for a scorer: a call on a whole prompt, `(impl, **prompt)`.

For a scorer of queries, keys, padding and flags, `prompt_inputs` derives the missing entries.

No paper specifies a random stream. Our own layers must match the reference's stream bit for bit.
For other modules the tests check only properties of the result.
"""

from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

import reference
from spec_tests.from_signature import refusals
from spec_tests.scorers import prompt_inputs

ROOT = Path(__file__).parent


def modules(pattern: str) -> list[Any]:
    """Import and return the modules of the suite whose files match a pattern."""
    files = sorted(ROOT.glob(pattern))
    modules = (file.relative_to(ROOT.parent).with_suffix("").parts for file in files)
    return [import_module(".".join(parts)) for parts in modules]


# a file of this name in a folder of the suite is found without being named anywhere
FILES = modules("*/**/strategies.py")


def union_of(part: str, *derived: dict[str, Any]) -> dict[str, Any]:
    """Return the union of the files' dictionaries of one name; no function may be in two."""
    found = [*derived, *(getattr(file, part) for file in FILES if hasattr(file, part))]
    every = {name: value for names in found for name, value in names.items()}
    distinct = {id(names): len(names) for names in found}
    assert len(every) == sum(distinct.values()), f"a function has {part} in two files"
    return every


def depends_on_random_stream(name: str, inputs: dict[str, Any]) -> bool:
    """Whether a result depends on a random stream or on names, which differ between modules."""
    if name not in DRAWN:
        return False
    bound = signature(getattr(reference, name)).bind(**inputs)
    bound.apply_defaults()
    return DRAWN[name](bound.arguments)


def strategies_by_name(file: Any) -> dict[str, Any]:
    """Return the file's strategies that are named as a public function and are not in `INPUTS`."""
    own = {k: v for k, v in vars(file).items() if getattr(v, "__module__", "") == file.__name__}
    open_names = set(reference.__all__) - set(getattr(file, "INPUTS", ()))
    return {name: strategy() for name, strategy in own.items() if name in open_names}


def as_strategies(inputs: dict[str, Any]) -> dict[str, st.SearchStrategy[dict[str, Any]]]:
    """Return a strategy for each function; a dictionary has one for each argument."""
    kinds = inputs.items()
    return {k: st.fixed_dictionaries(x) if isinstance(x, dict) else x for k, x in kinds}


INPUTS = prompt_inputs.INPUTS | as_strategies(union_of("INPUTS", *map(strategies_by_name, FILES)))
EXTENDED = as_strategies(union_of("EXTENDED"))
CORNERS = union_of("CORNERS")
BY_HAND = prompt_inputs.REFUSALS | union_of("REFUSALS")
GOOD = union_of("GOOD") | {name: good for name, (good, _) in BY_HAND.items()}
SCORED = prompt_inputs.SCORED | union_of("SCORED")
DRAWN = union_of("DRAWN")
REFUSALS = {
    name: (good, [*BY_HAND.get(name, (good, []))[1], *refusals(getattr(reference, name), good)])
    for name, good in GOOD.items()
}
