"""What every public function may be given, and what it must refuse.

Each idea's `draws.py` has a Hypothesis strategy for each of its functions, under its own name or in
`INPUTS`, inputs for branches that draws reach seldom (`CORNERS`), a call that is accepted (`GOOD`),
what it must refuse that no signature says (`REFUSALS`), and for which inputs its answer is a matter
of the draw (`DRAWN`). What a signature does say is refused as well: `derived` reads it there. A
scorer's has a call of it on a whole prompt, too (`SCORED`): `(impl, **prompt)`.

No paper states a random stream. So our own layers must draw what the reference draws, bit for bit,
and other modules are asked for properties alone.
"""

from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import reference
from spec_tests.derived import refusals

ROOT = Path(__file__).parent


def modules(pattern: str) -> list[Any]:
    """Return the modules of the suite at the places a pattern finds."""
    files = sorted(ROOT.glob(pattern))
    places = (file.relative_to(ROOT.parent).with_suffix("").parts for file in files)
    return [import_module(".".join(place)) for place in places]


FILES = modules("*/**/draws.py")


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
