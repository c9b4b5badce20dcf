"""Check that a top-level package belongs to this project."""

from importlib.util import find_spec
from pathlib import Path


def refuse_foreign(name: str) -> None:
    """Raise an error if `name` imports a package that is not part of kvspec."""
    spec, own = find_spec(name), Path(__file__).resolve().parents[1] / name
    found = [spec.origin, *(spec.submodule_search_locations or [])] if spec else []
    places = [Path(path).resolve() for path in found if path]
    if own not in places:
        raise ImportError(
            f"`{name}` is {places[0] if places else 'missing'}, not {own} of kvspec: rename it, or "
            "keep its folder off Python's search path (`python -P` leaves out the current folder)",
            name=name,
        )
