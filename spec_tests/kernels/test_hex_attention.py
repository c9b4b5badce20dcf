"""Kernels of decode attention over a HEX cache: heads of 64 and 128 channels, any split."""

import re
from importlib import import_module
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from optimized import kernels, vector
from optimized.bench.launch_recorder import launched
from optimized.hex_packed_layout import PackedCache
from spec_tests.accuracy import assert_as_accurate, assert_equal
from spec_tests.kernels.hex_cache_strategy import wide_cache_inputs
from spec_tests.kernels.interpreter import ORDERS, programs_in_order

home = import_module("optimized.kernels.hex.attention")
taken = wide_cache_inputs().filter(lambda x: home.taken(**x, valid=None))


@settings(max_examples=4)
@given(taken, st.sampled_from([1, 4, 1056]), st.sampled_from([None, 0.0625]), st.booleans())
def test_programs_read_what_the_specification_restores_in_any_order(x, resident, scale, mass):
    x = x | dict(scale=scale, mass=mass, log_sum_exp=True)
    with patch.multiple(home, RESIDENT=resident, multiprocessors=lambda _: 1):
        attended = home.hex_attention(**x)
        with programs_in_order(ORDERS["shuffled"]):
            assert_equal(home.hex_attention(**x), attended)
    assert_as_accurate(attended, reference.hex_attention, x)


@pytest.mark.parametrize(("bits", "width"), sorted(home.TAKEN))
def test_codes_of_every_width_are_read_in_single_precision(bits, width):
    generator = torch.Generator().manual_seed(bits)
    stream = torch.randn(3, 2, 160, width, generator=generator)
    stream[0] /= 4
    config = reference.HexConfig(bits=bits, density=0.125, heavy=0.02, recent=3, block=32)
    cache = vector.hex_prefill(*(x[:, :-1] for x in stream), config=config)
    x = dict(queries=stream[0][:, -1:].clone(), cache=cache)
    assert_as_accurate(home.hex_attention(**x), reference.hex_attention, x)


@pytest.mark.parametrize(
    ("queries", "bits", "why"),
    [
        (torch.ones(4, 1, 64, dtype=torch.float64), 4, "got torch.float64, 4 bits"),
        (torch.ones(4, 1, 64), 3, "got torch.float32, 3 bits and 64 channels"),
        (torch.ones(3, 1, 64), 4, "(*batch, a multiple of 2, 1, 64), got (3, 1, 64)"),
        (torch.ones(4, 2, 64), 4, "(*batch, a multiple of 2, 1, 64), got (4, 2, 64)"),
    ],
)
def test_a_laid_out_cache_refuses_what_the_kernels_are_not_made_for(queries, bits, why):
    config = reference.HexConfig(bits=bits, density=0.0)
    cache = vector.hex_prefill(*torch.ones(3, 2, 96, 64), config=config)
    with pytest.raises(ValueError, match=re.escape(why)):
        home.attend_packed(queries, PackedCache.of(cache))


@pytest.mark.parametrize(
    "change",
    [
        {},
        dict(count=2),
        dict(valid=torch.ones(96, dtype=torch.bool)),
        dict(dtype=torch.float64),
        dict(width=32),
        dict(bits=3),
        dict(bits=8),
        dict(tokens=95),
        dict(density=1.0),
        dict(value_bits=2),
    ],
    ids=lambda change: next(iter(change), "none"),
)
def test_each_rule_falls_back_by_itself(change):
    usual = dict(count=1, valid=None, dtype=torch.float32, width=64, bits=4, tokens=96, density=0.0)
    usual |= dict(value_bits=None)
    count, valid, dtype, width, bits, tokens, density, value_bits = (usual | change).values()
    config = reference.HexConfig(bits, density, heavy=0.0, recent=0, value_bits=value_bits)
    cache = vector.hex_prefill(*torch.ones(3, 2, tokens, width), config=config)
    queries = torch.ones(4, count, width, dtype=dtype)
    launches = launched(lambda: kernels.hex_attention(queries, cache, valid))
    assert bool(launches) is not bool(change)
