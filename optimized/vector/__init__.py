"""Vectorised PyTorch bodies: any device, no loops over tokens, heads or queries."""

from inspect import isfunction, ismodule, unwrap
from typing import TYPE_CHECKING, Any

import reference
from optimized._dispatch import modules

if TYPE_CHECKING:
    from reference import *  # noqa: F403


def _bodies() -> dict[str, Any]:
    """Return the functions that modules of this package define or rebind under public names."""
    found: dict[str, Any] = {}
    for home in modules(__name__):
        here = vars(home)
        for name in here.keys() & set(reference.__all__):
            spec, body = getattr(reference, name), here[name]
            if not ismodule(body) and body not in (spec, unwrap(spec)):
                assert found.setdefault(name, body) is body, f"{home.__name__} has another {name}"
    return found


_found = _bodies()
ELEMENTWISE = frozenset(
    name
    for name in reference.__all__
    if isfunction(getattr(reference, name)) and name not in _found
)
"""Functions without a body here: they run that of the reference, which has no loop."""

_found |= {name: unwrap(getattr(reference, name)) for name in ELEMENTWISE}
__all__ = [n for n in reference.__all__ if n in _found]  # pyright: ignore[reportUnsupportedDunderAll]
globals().update(_found)
