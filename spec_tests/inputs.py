"""What every public function may be given, and what it must refuse.

The `strategies.py` of each idea holds, for each of its functions:

- a Hypothesis strategy, under the function's name or in `INPUTS`;
- `CORNERS`: inputs for branches that random examples rarely reach;
- `GOOD`: one call that is accepted;
- `REFUSALS`: what must be refused and no signature says; the rest `from_signature` derives;
- `DRAWN`: for which inputs the answer depends on a random stream;
- `SCORED`, for a scorer: a call on a whole prompt, `(impl, **prompt)`.

No paper states a random stream. Our own layers must draw what the reference draws, bit for bit;
other modules are tested for properties alone.
"""

from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import reference
from spec_tests.from_signature import refusals

ROOT = Path(__file__).parent


def modules(pattern: str) -> list[Any]:
    """Return the modules of the suite at the places a pattern finds."""
    files = sorted(ROOT.glob(pattern))
    places = (file.relative_to(ROOT.parent).with_suffix("").parts for file in files)
    return [import_module(".".join(place)) for place in places]


FILES = modules("*/**/strategies.py")


def joined(part: str, *more: dict[str, Any]) -> dict[str, Any]:
    """Join the dictionaries that the files have under a name; no function stands in two."""
    found = [*more, *(getattr(file, part) for file in FILES if hasattr(file, part))]
    every = {name: value for names in found for name, value in names.items()}
    distinct = {id(names): len(names) for names in found}
    assert len(every) == sum(distinct.values()), f"a function has {part} in two files"
    return every


def is_drawn(name: str, inputs: dict[str, Any]) -> bool:
    """Whether an answer depends on a random stream, or on names: those of others may differ."""
    if name not in DRAWN:
        return False
    bound = signature(getattr(reference, name)).bind(**inputs)
    bound.apply_defaults()
    return DRAWN[name](bound.arguments)


def named(file: Any) -> dict[str, Any]:
    """Return the strategies of a file that alone bear the name of a public function."""
    own = {k: v for k, v in vars(file).items() if getattr(v, "__module__", "") == file.__name__}
    open_names = set(reference.__all__) - set(getattr(file, "INPUTS", ()))
    return {name: strategy() for name, strategy in own.items() if name in open_names}


INPUTS = joined("INPUTS", *map(named, FILES))
CORNERS = joined("CORNERS")
BY_HAND = joined("REFUSALS")
GOOD = joined("GOOD") | {name: good for name, (good, _) in BY_HAND.items()}
SCORED = joined("SCORED")
DRAWN = joined("DRAWN")
REFUSALS = {
    name: (good, [*BY_HAND.get(name, (good, []))[1], *refusals(getattr(reference, name), good)])
    for name, good in GOOD.items()
}
