"""The reference API, fast: Triton kernels on CUDA, vectorised PyTorch everywhere else.

The table below is the whole optimisation map: the specification, its vectorised body, its kernel.
A row without a kernel runs its vectorised body on every device. `elementwise` declares a
specification that has no loop to get rid of: `optimized.vector` offers that very body.
"""

import reference
from optimized import kernels, vector
from optimized._dispatch import dispatch

hub_mask = dispatch(reference.hub_mask, vector.hub_mask)
discount = dispatch(reference.discount, vector.discount)
smd = dispatch(reference.smd, vector.smd, kernels.smd)

__all__ = reference.__all__  # pyright: ignore[reportUnsupportedDunderAll]
