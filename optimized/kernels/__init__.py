"""Triton kernels, for CUDA only; with TRITON_INTERPRET=1 they run on the CPU.

A file holds the kernels of one module of the specification, at the same path, and their launchers
under public names. A body of `optimized.vector` that calls functions with kernels runs these on a
GPU, see `kernel_on_gpu`. Kernels have no gradients: a call that needs gradients falls back to
PyTorch. Without Triton there are no kernels.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

import reference
from optimized._dispatch import inherit_defaults, public_bodies

if TYPE_CHECKING:
    from reference import *  # noqa: F403


_found = public_bodies(__name__) if find_spec("triton") else {}
__all__ = [n for n in reference.__all__ if n in _found]  # pyright: ignore[reportUnsupportedDunderAll]
globals().update(_found)
for _name, _body in _found.items():
    inherit_defaults(_body, getattr(reference, _name))
