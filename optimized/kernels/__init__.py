"""Triton bodies, CUDA only; with TRITON_INTERPRET=1 they run on the CPU.

A file holds one idea: its kernels, and under public names what launches them. Only a file that
offers a public name may be called like it. Where Triton is not installed there are no kernels.
"""

from importlib import import_module
from importlib.util import find_spec
from inspect import isfunction
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import reference

if TYPE_CHECKING:
    from reference import *  # noqa: F403


def _rows() -> dict[str, Any]:
    """Return what the modules of this package define under public names."""
    if not find_spec("triton"):
        return {}
    places = iter_modules([str(Path(__file__).parent)], f"{__name__}.")
    homes = [import_module(place.name) for place in places]
    return {
        name: body
        for home in homes
        for name, body in vars(home).items()
        if name in reference.__all__ and isfunction(body) and body.__module__ == home.__name__
    }


_found = _rows()
__all__ = [n for n in reference.__all__ if n in _found]  # pyright: ignore[reportUnsupportedDunderAll]
globals().update(_found)
