"""Shared parts of all kernels: conversion of numbers, and detection of masks of one row."""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor


def patch_index_conversion(patch: Any) -> Any:
    """Return a patch of Triton's interpreter that converts an array of one element to an integer.

    numpy 2.4 refuses the conversion of Triton 3.6.
    """

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    return patched


if triton.knobs.runtime.interpret:
    from triton.runtime import interpreter

    interpreter._patch_lang_tensor = patch_index_conversion(interpreter._patch_lang_tensor)


@triton.jit
def widened(x):
    """Return loaded numbers in float32; float64 stays float64.

    Required before any arithmetic or comparison: the interpreter holds bfloat16 as raw bits.
    """
    if x.dtype == tl.float64:
        return x
    elif x.dtype == tl.bfloat16:
        # by bits: the interpreter's own conversion loses the smallest numbers
        bits = x.to(tl.uint16, bitcast=True).to(tl.uint32) << 16
        return bits.to(tl.float32, bitcast=True)
    else:
        return x.to(tl.float32)


@triton.jit
def round_to_dtype(x, dtype: tl.constexpr):
    """Return float32 or float64 in another dtype, half to even."""
    if dtype == tl.bfloat16:
        # by bits: the interpreter's own conversion truncates
        bits = x.to(tl.float32).to(tl.uint32, bitcast=True)
        even = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return even.to(tl.uint16).to(tl.bfloat16, bitcast=True)
    else:
        return x.to(dtype)


@triton.jit
def padded(length):
    """Return a length rounded up to a multiple of 16, which the compiler sees that it is.

    Kernels take lengths unspecialised: they are not compiled anew as a text grows.
    """
    return tl.cdiv(length, 16) * 16


def is_row_broadcast(mask: Tensor) -> bool:
    """Whether all rows of a mask share one row of memory, as after `expand`."""
    return not any(mask.stride()[:-1]) and mask.stride(-1) == 1
