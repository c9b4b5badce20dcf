"""What kernels share: how numbers are widened and rounded, and which masks are one row."""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor


def with_numbers(patch: Any) -> Any:
    """Let the interpreter make a number of an array of one: numpy 2.4 refuses Triton 3.6's way."""

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    return patched


if triton.knobs.runtime.interpret:
    from triton.runtime import interpreter

    interpreter._patch_lang_tensor = with_numbers(interpreter._patch_lang_tensor)


@triton.jit
def widened(x):
    """Return loaded numbers in float32, or as they are where they already are float64.

    Before any arithmetic or comparison: the interpreter holds raw bfloat16 as its bits.
    """
    if x.dtype == tl.float64:
        return x
    elif x.dtype == tl.bfloat16:
        # by hand, as below: the interpreter's own conversion loses the smallest
        bits = x.to(tl.uint16, bitcast=True).to(tl.uint32) << 16
        return bits.to(tl.float32, bitcast=True)
    else:
        return x.to(tl.float32)


@triton.jit
def rounded(x, dtype: tl.constexpr):
    """Return float32 or float64 in another dtype, half to even."""
    if dtype == tl.bfloat16:
        # by hand: the interpreter's own conversion cuts the low bits off
        bits = x.to(tl.float32).to(tl.uint32, bitcast=True)
        even = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return even.to(tl.uint16).to(tl.bfloat16, bitcast=True)
    else:
        return x.to(dtype)


def is_one_row(mask: Tensor) -> bool:
    """Whether all rows of a mask are one in memory, which need not be copied for each."""
    return not any(mask.stride()[:-1]) and mask.stride(-1) == 1
