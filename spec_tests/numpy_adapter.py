"""An adapter that lets the suite call a module of functions over NumPy or JAX arrays.

Write `kv = adapted(yourlib.kv)` in a file of yours, and run `python -m spec_tests yourfile:kv`.
Tensors become arrays that share their memory, and dtypes become NumPy's. Returned arrays become
tensors. `adapted(yourlib.kv, jax.numpy.asarray)` also applies that function to each array it
passes; a returned value is an array if NumPy can read it.

NumPy has no bfloat16, so tests at that dtype are skipped. NumPy's warnings about overflow, division
by zero and means of empty arrays are silenced, since PyTorch has none. A returned NumPy number,
such as a mean, becomes a Python number where the specification returns one, otherwise a tensor
without axes.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from functools import partial, wraps
from inspect import signature
from typing import Any
from warnings import catch_warnings

import numpy as np
import torch
from torch import Tensor

from spec_tests.program import NotSupported

DTYPES = {
    **{torch.float64: np.float64, torch.float32: np.float32, torch.float16: np.float16},
    **{torch.int64: np.int64, torch.int32: np.int32, torch.int16: np.int16, torch.int8: np.int8},
    **{torch.uint8: np.uint8, torch.bool: np.bool_},
}


Make = Callable[[np.ndarray], Any]  # from NumPy's array to another library's


class Adapted:
    """A module whose functions take tensors and call those of a module of arrays."""

    dtypes = tuple(dtype for dtype in DTYPES if dtype.is_floating_point)

    def __init__(self, module: Any, make: Make = np.asarray):
        self.module, self.make = module, make

    def __dir__(self) -> list[str]:
        return dir(self.module)

    def __getattr__(self, name: str) -> Any:
        """Return a function of the module wrapped to take tensors, or any other name unchanged."""
        found = getattr(self.module, name)
        if isinstance(found, type) or not callable(found):
            return found
        return among_tensors(found, self.make)


adapted = Adapted


def among_tensors(function: Callable[..., Any], make: Make = np.asarray) -> Callable[..., Any]:
    """Return a function of arrays wrapped to take and return tensors."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with np.errstate(all="ignore"), catch_warnings(action="ignore", category=RuntimeWarning):
            given = {name: to_arrays(value, make) for name, value in kwargs.items()}
            return to_tensors(function(*(to_arrays(value, make) for value in args), **given))

    with suppress(TypeError, ValueError):  # no signature, as of a function in C
        its = signature(function)
        parameters = [p.replace(default=to_tensors(p.default)) for p in its.parameters.values()]
        vars(call)["__signature__"] = its.replace(parameters=parameters)
    return call


def to_arrays(value: Any, make: Make = np.asarray) -> Any:
    """Return a value with its tensors as arrays; a function in it takes and returns arrays."""
    if isinstance(value, Tensor):
        numpy_dtype(value.dtype)
        return make(value.detach().numpy())
    if isinstance(value, torch.dtype):
        return np.dtype(numpy_dtype(value))
    if callable(value) and not isinstance(value, type):
        return lambda *given: to_arrays(value(*map(to_tensors, given)), make)
    return change_parts(partial(to_arrays, make=make), value)


def to_tensors(value: Any) -> Any:
    """Return a value with its arrays as tensors, and NumPy's dtypes as PyTorch's."""
    if hasattr(value, "__array__") and not isinstance(value, Tensor | type):
        whole = np.asarray(value)
        shares = whole.flags.writeable and all(step >= 0 for step in whole.strides)
        return torch.from_numpy(whole if shares else whole.copy())
    if isinstance(value, np.dtype | type):  # `np.float32` is a type
        return next((dtype for dtype, kind in DTYPES.items() if kind == value), value)
    return change_parts(to_tensors, value)


def change_parts(change: Callable[[Any], Any], value: Any) -> Any:
    """Return a tuple, list, dictionary or data class with `change` applied to each part."""
    if isinstance(value, dict):
        return {name: change(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        parts: Any = map(change, value)
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: change(getattr(value, f.name)) for f in fields(value)})
    return value


def numpy_dtype(dtype: torch.dtype) -> Any:
    """Return NumPy's counterpart of a dtype.

    Raises:
        NotSupported: NumPy has none.
    """
    if dtype not in DTYPES:
        raise NotSupported(f"NumPy has no {str(dtype).removeprefix('torch.')}")
    return DTYPES[dtype]
