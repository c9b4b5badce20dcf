"""Vectorised PyTorch bodies: any device, no loops over tokens, heads or queries."""

from importlib import import_module
from inspect import isfunction, unwrap
from pathlib import Path
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any

import reference

if TYPE_CHECKING:
    from reference import *  # noqa: F403

ELEMENTWISE = frozenset([])
"""What runs the reference's own body, since that has no loop to get rid of."""


def _bodies() -> dict[str, Any]:
    """Return what the modules of this package define or compose under public names."""
    found: dict[str, Any] = {}
    for place in walk_packages([str(Path(__file__).parent)], f"{__name__}."):
        for name, value in vars(import_module(place.name)).items():
            spec = getattr(reference, name, None) if name in reference.__all__ else None
            if spec is not None and value not in (spec, unwrap(spec)):
                assert found.setdefault(name, value) is value, f"{name} has two bodies"
    return found


__all__ = [
    name
    for name in reference.__all__
    if isfunction(getattr(reference, name)) or name in ("MaskStore", "FastKVzipGate")
]
globals().update({name: unwrap(getattr(reference, name)) for name in ELEMENTWISE} | _bodies())
