"""Vectorised PyTorch bodies: any device, no loops over tokens, heads or queries."""

from importlib import import_module
from inspect import isfunction, ismodule, unwrap
from pathlib import Path
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any

import reference

if TYPE_CHECKING:
    from reference import *  # noqa: F403


def _bodies() -> dict[str, Any]:
    """Return what the modules of this package define or compose under public names."""
    found: dict[str, Any] = {}
    for place in walk_packages([str(Path(__file__).parent)], f"{__name__}."):
        here = vars(import_module(place.name))
        for name in here.keys() & set(reference.__all__):
            spec, body = getattr(reference, name), here[name]
            if not ismodule(body) and body not in (spec, unwrap(spec)):
                assert found.setdefault(name, body) is body, f"{place.name} has another {name}"
    return found


_found = _bodies()
ELEMENTWISE = frozenset(
    name
    for name in reference.__all__
    if isfunction(getattr(reference, name)) and name not in _found
)
"""What has no body here: it runs the reference's own, which has no loop to get rid of."""

_found |= {name: unwrap(getattr(reference, name)) for name in ELEMENTWISE}
__all__ = [n for n in reference.__all__ if n in _found]  # pyright: ignore[reportUnsupportedDunderAll]
globals().update(_found)
