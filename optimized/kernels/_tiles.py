"""What kernels of attention share: rows of a matrix, their products, and for which input."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime.interpreter import InterpretedFunction

from optimized.kernels._device import widened

DTYPES = {torch.bfloat16, torch.float16, torch.float32}
WIDEST = 256
"""Channels of the widest rows that fit into shared memory."""
PROGRAMS = 264
"""Two for each multiprocessor of an H100: with fewer, the tokens of a head are split."""


@triton.jit
def tile(matrix, start, rows, WIDTH: tl.constexpr, ROOM: tl.constexpr, SIZE: tl.constexpr):
    """Return rows of a matrix from `start` on, as they are stored, and zeros beyond its end."""
    i, d = tl.arange(0, SIZE), tl.arange(0, ROOM)
    there = (i < rows - start)[:, None]
    if ROOM != WIDTH:
        there &= (d < WIDTH)[None, :]
    here = matrix + tl.cast(start, tl.int64) * WIDTH
    return tl.load(here + i[:, None] * WIDTH + d[None, :], mask=there, other=0.0)


@triton.jit
def product(one, other, NATIVE: tl.constexpr):
    """Return a matrix product in float32: of 16-bit numbers each term is exact either way."""
    if NATIVE:
        return tl.dot(one, other, input_precision="ieee")
    else:
        return tl.dot(widened(one), widened(other), input_precision="ieee")


def fits(queries: Tensor, keys: Tensor, beside: Tensor | None = None) -> bool:
    """Whether kernels are made for rows like these, and for numbers beside them.

    What they are not made for is handed on.
    """
    dtypes = {x.dtype for x in (queries, keys, beside) if x is not None}
    known = dtypes <= DTYPES and queries.shape[-1] <= WIDEST
    return known and min(queries.numel(), keys.numel()) > 0


def room(width: int) -> int:
    """Return how many channels a tile has room for."""
    return max(16, triton.next_power_of_2(width))


def native(kernel: object, queries: Tensor, keys: Tensor, stored: Tensor | None = None) -> bool:
    """Whether products take rows as they are stored: the interpreter multiplies bits."""
    alike = queries.dtype == keys.dtype and (stored is None or stored.dtype == keys.dtype)
    return alike and not isinstance(kernel, InterpretedFunction)
