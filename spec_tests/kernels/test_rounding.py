"""Loads and stores of kernels convert numbers as torch does, also in the interpreter."""

from operator import index
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from optimized.kernels._numerics import patch_index_conversion, round_to_dtype, widened
from spec_tests.accuracy import assert_equal

every_half = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)


@triton.jit
def copied(source, target, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(target + i, round_to_dtype(widened(tl.load(source + i)), target.dtype.element_ty))


def copy(source, dtype):
    """Return numbers converted to a dtype by the conversion that kernels share."""
    target = torch.empty_like(source, dtype=dtype)
    copied[(1,)](source, target, BLOCK=source.numel())
    return target


def every(dtype):
    """Return all numbers of a 16-bit dtype, with 0 in place of NaN."""
    numbers = torch.arange(2**16).to(torch.uint16).view(dtype)
    return numbers.where(~numbers.isnan(), 0)


@every_half
def test_every_half_widens_to_itself(dtype):
    assert_equal(copy(every(dtype), torch.float32), every(dtype).float())


@every_half
def test_float32_is_rounded_half_to_even(dtype):
    """The inputs are the midpoints between neighbouring numbers, and one bit to either side."""
    numbers = every(dtype).float()
    halfway = (numbers.double() + every(dtype).roll(-1).double()) / 2
    for near in (halfway.float(), *(halfway.float().nextafter(torch.tensor(x)) for x in (-9, 9.0))):
        assert_equal(copy(near, dtype), near.to(dtype))


def test_an_array_of_one_is_a_number():
    tensor: Any = type("Tensor", (), dict(handle=SimpleNamespace(data=np.array([3]))))
    patch_index_conversion(lambda *_: None)(tensor, SimpleNamespace(set_attr=setattr))
    assert index(tensor()) == 3
