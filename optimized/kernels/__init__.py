"""Triton bodies, CUDA only; with TRITON_INTERPRET=1 they run on the CPU.

A file holds one idea, at its path: its kernels, and under public names what launches them. Only a
file that offers a public name may be called like it. A vectorised body that calls one of these
names stands here as well, over the kernels. Kernels have no gradients: a call that asks for them is
the vectorised body's. Where Triton is not installed there are no kernels.
"""

from functools import partial
from importlib.util import find_spec
from inspect import isfunction
from typing import TYPE_CHECKING, Any

import reference
from optimized import vector
from optimized._composed import modules, over
from optimized._dispatch import fit, forward

if TYPE_CHECKING:
    from reference import *  # noqa: F403


def _rows() -> dict[str, Any]:
    """Return what the modules of this package define under public names."""
    if not find_spec("triton"):
        return {}
    return {
        name: forward(body, partial(getattr, vector, name))
        for home in modules(__name__)
        for name, body in vars(home).items()
        if name in reference.__all__ and isfunction(body) and body.__module__ == home.__name__
    }


_launchers = _rows()
LAUNCHERS = tuple(name for name in reference.__all__ if name in _launchers)
"""The names with kernels of their own; the others are texts over these."""
_bound = over(__name__, {getattr(vector, name): row for name, row in _launchers.items()})
_bodies = {name: getattr(vector, name) for name in vector.__all__}
_found = {name: _bound[body] for name, body in _bodies.items() if body in _bound}
__all__ = [n for n in reference.__all__ if n in _found]  # pyright: ignore[reportUnsupportedDunderAll]
globals().update(_found)
for _name, _body in _found.items():
    fit(_body, getattr(reference, _name))


def over_them(body: Any) -> Any:
    """Return what a vectorised body is over the kernels; itself, where it calls none."""
    return _bound.get(body, body)
