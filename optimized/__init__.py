"""The reference API, fast: Triton kernels on CUDA, vectorised PyTorch everywhere else.

Every name of the reference is here, with its signature, its types and its errors. A function runs
its kernel, where `optimized.kernels` has one and all tensors are on a GPU, or else its body in
`optimized.vector`. `python -m optimized.list_backends` prints which: the whole optimisation map.
"""

from inspect import isfunction
from typing import TYPE_CHECKING, Any

import reference
from optimized import vector
from optimized._dispatch import dispatch

if TYPE_CHECKING:
    from reference import *  # noqa: F403

__all__ = reference.__all__  # pyright: ignore[reportUnsupportedDunderAll]


def kernel_of(name: str) -> Any:
    """Return the kernel of a function; Triton is imported when one is first asked for."""
    from optimized import kernels

    return getattr(kernels, name, None)


def _row(name: str) -> Any:
    spec = getattr(reference, name)
    if not isfunction(spec):
        return getattr(vector, name, spec)
    return dispatch(spec, getattr(vector, name), lambda: kernel_of(name))


globals().update({name: _row(name) for name in __all__})
