"""The project under one name: `reference`, `optimized` and `models`, its plug-in for transformers.

An installed package `kvspec` is made from this file. `from kvspec import reference` is the same
module as `import reference`.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import optimized
import reference

if TYPE_CHECKING:
    from optimized import models as models

if getattr(optimized, "__all__", None) is not getattr(reference, "__all__", 0):
    raise ImportError(
        f"`reference` is {reference.__spec__.origin}, `optimized` is {optimized.__spec__.origin}: "
        "one of them is not of kvspec: rename it, or keep its folder off Python's search path "
        "(`python -P` leaves out the current folder)"
    )

__all__ = ["models", "optimized", "reference"]
__version__ = version("kvspec")


def __getattr__(name: str) -> Any:
    """Import `models` when it is first used, since it needs transformers."""
    if name == "models":
        return import_module("optimized.models")
    raise AttributeError(f"module 'kvspec' has no attribute {name!r}")
