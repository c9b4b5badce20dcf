"""The reference API, fast: Triton kernels on CUDA, vectorised PyTorch everywhere else.

Every name of the reference is here, with its signature, its types and its errors. If all tensors
are on a GPU and `optimized.kernels` has a kernel for a function, the kernel runs. Otherwise its
body in `optimized.vector` does. `python -m optimized.list_backends` prints both for each function.
Within `trusted()` the values of tensors are not checked.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from optimized._origin import refuse_foreign

refuse_foreign("reference")

if TYPE_CHECKING:
    from optimized import vector as vector
    from optimized._dispatch import kernel_of as kernel_of
    from reference import *  # noqa: F403
    from reference import __all__ as __all__
    from reference.contract.enforce import trusted as trusted
else:

    def __getattr__(name: str) -> Any:
        """Make all names now, where help was asked for and an import needs them."""
        import_module("optimized._names")
        if name not in globals():
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals()[name]

    # `python -m` imports the package with "-m" as the first argument; help is shown without PyTorch
    if not (sys.argv[:1] == ["-m"] and {"-h", "--help"} & {*sys.argv}):
        import_module("optimized._names")
