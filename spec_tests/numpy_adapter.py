"""A module of functions over NumPy or JAX arrays, as the suite calls modules of tensors.

`kv = adapted(yourlib.kv)` in a file of yours, and `python -m spec_tests yourfile:kv`. Tensors are
handed over as arrays that share their memory, dtypes as NumPy's, and arrays come back as tensors.
`adapted(yourlib.kv, jax.numpy.asarray)` hands over what that makes of the arrays; of what comes
back, whatever NumPy can read is an array. NumPy has no bfloat16: what asks for it is left out. Its
warnings about overflow, division by zero and means of nothing are silent, as PyTorch's are. A
number of NumPy's, such as a mean, is one of Python's where the specification returns one, and a
tensor of no axes elsewhere.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import partial, wraps
from typing import Any
from warnings import catch_warnings

import numpy as np
import torch
from torch import Tensor

from spec_tests.implementation import Unheard

DTYPES = {
    **{torch.float64: np.float64, torch.float32: np.float32, torch.float16: np.float16},
    **{torch.int64: np.int64, torch.int32: np.int32, torch.int16: np.int16, torch.int8: np.int8},
    **{torch.uint8: np.uint8, torch.bool: np.bool_},
}


Make = Callable[[np.ndarray], Any]  # an array of another library, of one of NumPy's


class Adapted:
    """The names of a module, its functions called with arrays."""

    dtypes = tuple(dtype for dtype in DTYPES if dtype.is_floating_point)

    def __init__(self, module: Any, make: Make = np.asarray):
        self.module, self.make = module, make

    def __dir__(self) -> list[str]:
        return dir(self.module)

    def __getattr__(self, name: str) -> Any:
        """Return a function of the module among tensors; any other name of it is itself."""
        found = getattr(self.module, name)
        if isinstance(found, type) or not callable(found):
            return found
        return among_tensors(found, self.make)


adapted = Adapted


def among_tensors(function: Callable[..., Any], make: Make = np.asarray) -> Callable[..., Any]:
    """Return a function of arrays as one of tensors."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with np.errstate(all="ignore"), catch_warnings(action="ignore", category=RuntimeWarning):
            given = {name: to_arrays(value, make) for name, value in kwargs.items()}
            return to_tensors(function(*(to_arrays(value, make) for value in args), **given))

    return call


def to_arrays(value: Any, make: Make = np.asarray) -> Any:
    """Return a value with arrays for its tensors; a function handed over takes and gives arrays."""
    if isinstance(value, Tensor):
        heard(value.dtype)
        return make(value.detach().numpy())
    if isinstance(value, torch.dtype):
        return np.dtype(heard(value))
    if callable(value) and not isinstance(value, type):
        return lambda *given: to_arrays(value(*map(to_tensors, given)), make)
    return within(partial(to_arrays, make=make), value)


def to_tensors(value: Any) -> Any:
    """Return a value with tensors for its arrays."""
    if hasattr(value, "__array__") and not isinstance(value, Tensor | type):
        whole = np.asarray(value)
        shares = whole.flags.writeable and all(step >= 0 for step in whole.strides)
        return torch.from_numpy(whole if shares else whole.copy())
    if isinstance(value, np.dtype):
        return next(dtype for dtype, kind in DTYPES.items() if kind == value)
    return within(to_tensors, value)


def within(change: Callable[[Any], Any], value: Any) -> Any:
    """Return a value with what stands in tuples, lists, dictionaries and data classes changed."""
    if isinstance(value, dict):
        return {name: change(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        parts: Any = map(change, value)
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: change(getattr(value, f.name)) for f in fields(value)})
    return value


def heard(dtype: torch.dtype) -> Any:
    """Return NumPy's name of a dtype.

    Raises:
        Unheard: it has none.
    """
    if dtype not in DTYPES:
        raise Unheard(f"NumPy has no {str(dtype).removeprefix('torch.')}")
    return DTYPES[dtype]
