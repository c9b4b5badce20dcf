"""Vectorised PyTorch bodies: any device, no loops over tokens, heads or queries."""

from inspect import isfunction, unwrap
from typing import TYPE_CHECKING

import reference
from optimized._dispatch import public_bodies

if TYPE_CHECKING:
    from reference import *  # noqa: F403


_found = {
    name: vars(body).get("without_kernel", body) for name, body in public_bodies(__name__).items()
}
ELEMENTWISE = frozenset(
    name
    for name in reference.__all__
    if isfunction(getattr(reference, name)) and name not in _found
)
"""Functions without a body here: they run that of the reference, which has no loop."""

_found |= {name: unwrap(getattr(reference, name)) for name in ELEMENTWISE}
__all__ = [n for n in reference.__all__ if n in _found]  # pyright: ignore[reportUnsupportedDunderAll]
globals().update(_found)
