"""Kernels pack and restore spans bit for bit as the specification does."""

from importlib import import_module
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from optimized import vector
from spec_tests.accuracy import assert_equal
from spec_tests.kernels.interpreter import small_blocks

home = import_module("optimized.kernels.hex.compress")
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def span(bits, width, tokens=130, dtype=torch.float16, seed=0, **settings) -> dict[str, Any]:
    """Return two rows of two heads with kept entries: whole tokens, and a tenth of the others."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(2, 2, 2, tokens, width, generator=generator)
    expander = torch.rand(tokens, 2 * width, generator=generator) < 0.1
    expander[:1] = True
    dynamic = torch.rand(2, tokens, generator=generator) < 0.1
    usual = dict(expander=expander, dynamic=dynamic, value_group="token", scales=None)
    keys, values = (noise[0] + 1).to(dtype), (noise[1] * 100).to(dtype)
    return dict(keys=keys, values=values, bits=bits) | usual | settings


def unkept(keys, values, **settings) -> dict[str, Any]:
    """Return a span without kept entries."""
    expander = torch.zeros(keys[0].shape[0], keys.shape[0] * keys.shape[-1], dtype=torch.bool)
    return dict(keys=keys, values=values, expander=expander, dynamic=expander[:, 0]) | settings


spans = st.builds(
    span,
    bits=st.integers(1, 8),
    width=st.sampled_from([5, 64, 128]),
    tokens=st.sampled_from([31, 96, 130]),
    dtype=st.sampled_from(DTYPES),
    value_group=st.sampled_from(["token", "head"]),
    scales=st.sampled_from([None, torch.float16, torch.float32]),
    seed=st.integers(0, 2**16),
)


@settings(max_examples=8)
@given(spans, st.sampled_from([32, 1024]))
def test_every_bit_is_that_of_the_specification(x, size):
    with small_blocks(size):
        block = home.hex_compress(**x)
    assert_equal(block, reference.hex_compress(**x))
    restored = home.hex_reconstruct(block, x["expander"])
    assert_equal(restored, reference.hex_reconstruct(block, x["expander"]))


@pytest.mark.parametrize("power", [-140, -20, 100])
def test_quotients_beside_a_half_are_rounded_as_divisions_are(power):
    """The numbers are the float32 values nearest to halves of steps of any size."""
    generator = torch.Generator().manual_seed(power + 999)
    steps = (1 + torch.rand(64, generator=generator)) * 2.0**power
    # three channels hold a third of the halves of each step, to need few programs
    numbers = [(torch.arange(0.5, 255).view(-1, 3, 1) * steps).flatten(1)]
    for direction in (-torch.inf, torch.inf):
        for start in (0, -1):
            numbers.append(numbers[start].nextafter(torch.tensor(direction)))
    steps = steps.repeat(3)
    keys = torch.cat([torch.zeros_like(steps)[None], *numbers, 255 * steps[None]])[None]
    x = unkept(keys, torch.zeros_like(keys), bits=8, value_group="token", scales=None)
    assert_equal(home.hex_compress(**x), vector.hex_compress(**x))


def test_what_coarse_scales_throw_beyond_the_range_is_clamped():
    keys = torch.tensor([60000.3, 60000.4, 60000.5, 60001.0] * 8).expand(1, 2, 32).mT.contiguous()
    keys[0, :, 1] /= 1e10
    x = unkept(keys, -keys, bits=3, value_group="head", scales=torch.float16)
    assert_equal(home.hex_compress(**x), reference.hex_compress(**x))


def test_what_the_scales_cannot_hold_is_refused():
    x = span(3, 8, dtype=torch.float32, scales=torch.float16)
    x["keys"] *= 2.0**20
    with pytest.raises(ValueError, match="keys must have minima and steps within"):
        home.hex_compress(**x)
