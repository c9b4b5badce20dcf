"""Vectorised PyTorch bodies: any device, no loops over tokens, heads or queries."""

from inspect import isfunction, unwrap
from typing import TYPE_CHECKING, Any

import reference
from optimized._dispatch import modules

if TYPE_CHECKING:
    from reference import *  # noqa: F403


def _bodies() -> dict[str, Any]:
    """Return the functions and classes that modules of this package define under public names."""
    found: dict[str, Any] = {}
    for home in modules(__name__):
        here = vars(home)
        for name in here.keys() & set(reference.__all__):
            if getattr(here[name], "__module__", None) == home.__name__:
                found[name] = vars(here[name]).get("without_kernel", here[name])
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
