"""The reference API, fast: Triton kernels on CUDA, vectorised PyTorch everywhere else.

Every name of the reference is here, with its signature, its types and its errors. If all tensors
are on a GPU and `optimized.kernels` has a kernel for a function, the kernel runs. Otherwise its
body in `optimized.vector` does. `python -m optimized.list_backends` prints both for each function.
Within `trusted()` the values of tensors are not checked.
"""

from inspect import isfunction
from typing import TYPE_CHECKING, Any

from optimized._origin import refuse_foreign

refuse_foreign("reference")

import reference  # noqa: E402
from optimized import vector  # noqa: E402
from optimized._dispatch import dispatch, kernel_of  # noqa: E402
from reference.contract.enforce import trusted as trusted  # noqa: E402

if TYPE_CHECKING:
    from reference import *  # noqa: F403

__all__ = reference.__all__  # pyright: ignore[reportUnsupportedDunderAll]


def _row(name: str) -> Any:
    spec = getattr(reference, name)
    if not isfunction(spec):
        return getattr(vector, name, spec)
    return dispatch(spec, getattr(vector, name), lambda: kernel_of(name))


globals().update({name: _row(name) for name in __all__})
