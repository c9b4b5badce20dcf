"""The sizes of KIVI's and GEAR's caches."""

import pytest
import torch
from hypothesis import given

import reference
from spec_tests.inputs import INPUTS
from spec_tests.quantizers.gear_cache.strategies import gear_caches
from spec_tests.quantizers.kivi.strategies import kivi_caches


@pytest.mark.spec("HEX-KIVI", "HEX-GEAR", "HEX-4.2a")
@given(kivi_caches() | gear_caches())
def test_the_parts_are_every_byte_stored(impl, cache):
    assert impl.quantizer_bytes(cache).total == reference.stored_bytes(cache)


@pytest.mark.spec("HEX-GEAR")
@given(gear_caches())
def test_the_parts_are_what_they_are_called(impl, cache):
    size, blocks = impl.quantizer_bytes(cache), (*cache.key_blocks, *cache.value_blocks)
    assert size.codes == sum(reference.stored_bytes(block.words) for block in blocks)
    assert size.outliers == sum(6 * block.outliers.numel() for block in blocks)
    assert size.factors == sum(4 * (b.left.numel() + b.right.numel()) for b in blocks)
    assert size.residual == 8 * cache.residual_keys.numel()


@pytest.mark.spec("HEX-KIVI")
@given(INPUTS["kivi_size"])
def test_a_prompt_weighs_in_kivis_cache_what_was_said_beforehand(impl, x):
    size, dtype = impl.kivi_size(**x), x.pop("dtype")
    zeros = torch.zeros(x.pop("kv_heads"), x.pop("tokens"), x.pop("width"), dtype=dtype)
    assert impl.quantizer_bytes(impl.kivi_prefill(zeros, zeros, **x)) == size


@pytest.mark.spec("HEX-GEAR")
@given(INPUTS["gear_size"])
def test_a_prompt_weighs_in_gears_cache_what_was_said_beforehand(impl, x):
    size, dtype = impl.gear_size(**x), x.pop("dtype")
    zeros = torch.zeros(x.pop("kv_heads"), x.pop("tokens"), x.pop("width"), dtype=dtype)
    assert impl.quantizer_bytes(impl.gear_prefill(zeros, zeros, **x)) == size
