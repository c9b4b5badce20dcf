"""Shared parts of attention kernels: tiles of rows, matrix products, and supported inputs."""

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime.interpreter import InterpretedFunction

from optimized.kernels._numerics import widened

DTYPES = {torch.bfloat16, torch.float16, torch.float32}
WIDEST = 256
"""Channels of the widest rows that fit into shared memory."""


@triton.jit
def tile(matrix, start, rows, WIDTH: tl.constexpr, ROOM: tl.constexpr, SIZE: tl.constexpr):
    """Return SIZE rows of a matrix from `start` on, in their stored type, with zeros as padding."""
    i, d = tl.arange(0, SIZE), tl.arange(0, ROOM)
    there = (i < rows - start)[:, None]
    if ROOM != WIDTH:
        there &= (d < WIDTH)[None, :]
    here = matrix + tl.cast(start, tl.int64) * WIDTH
    return tl.load(here + i[:, None] * WIDTH + d[None, :], mask=there, other=0.0)


@triton.jit
def product(left, right, NATIVE: tl.constexpr):
    """Return a matrix product in float32; terms of 16-bit numbers are exact, NATIVE or not."""
    if NATIVE:
        return tl.dot(left, right, input_precision="ieee")
    else:
        return tl.dot(widened(left), widened(right), input_precision="ieee")


@cache
def multiprocessors(device: torch.device) -> int:
    """Return how many multiprocessors a GPU has; as many as an H100 where there is no GPU."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return 132
    return torch.cuda.get_device_properties(device).multi_processor_count


def kernels_support(queries: Tensor, keys: Tensor, beside: Tensor | None = None) -> bool:
    """Whether the kernels support these rows, and a further tensor `beside` them.

    If not, the caller falls back to PyTorch.
    """
    dtypes = {x.dtype for x in (queries, keys, beside) if x is not None}
    supported = dtypes <= DTYPES and queries.shape[-1] <= WIDEST
    return supported and min(queries.numel(), keys.numel()) > 0


def padded_width(width: int) -> int:
    """Return the number of channels of a tile: a power of two of at least `width` and 16."""
    return max(16, triton.next_power_of_2(width))


def multiplies_stored_dtype(
    kernel: object, queries: Tensor, keys: Tensor, stored: Tensor | None = None
) -> bool:
    """Whether products take rows in their stored type; the interpreter cannot."""
    alike = queries.dtype == keys.dtype and (stored is None or stored.dtype == keys.dtype)
    return alike and not isinstance(kernel, InterpretedFunction)
