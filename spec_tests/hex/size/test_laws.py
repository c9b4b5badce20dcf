"""The size of a cache: HEX Tables 1 to 3."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reference
from spec_tests.hex.cache.strategies import BLOCK, KV_HEADS, WIDTH, caches, configs, streams
from spec_tests.hex.size.strategies import dtypes, prompts

pytestmark = pytest.mark.spec("HEX-4.2a")

PROMPTS = (900, 1304, 1021)


@given(caches())
def test_the_parts_are_every_byte_stored(impl, cache):
    assert impl.hex_bytes(cache).total == reference.stored_bytes(cache)


@given(streams(3 * BLOCK + 5, batch=((1,),)), configs(), dtypes)
def test_a_prompt_weighs_what_was_said_beforehand(impl, stream, config, dtype):
    config = config._replace(outside_recent=True)
    x = [part.to(dtype) for part in stream]
    cache = impl.hex_prefill(*x, config)
    assert impl.hex_bytes(cache) == impl.hex_size(config, x[1].shape[-2], KV_HEADS, WIDTH, dtype)


@pytest.mark.extension
@given(streams(3 * BLOCK + 5, batch=((1,),)), configs(heavy=0.0, extended=True), dtypes)
def test_a_prompt_weighs_as_much_as_keys_of_some_bits_and_values_of_others(
    impl, stream, config, dtype
):
    of_model = stream[1].shape[-2], KV_HEADS, WIDTH, dtype
    cache = impl.hex_prefill(*(part.to(dtype) for part in stream), config)
    size = impl.hex_bytes(cache)
    assert size == impl.hex_size(config, *of_model)
    assert size.total == reference.stored_bytes(cache)
    plain = (
        impl.hex_size(config._replace(bits=bits, value_bits=None), *of_model)
        for bits in (config.bits, config.value_bits)
    )
    assert 2 * size.codes == sum(each.codes for each in plain)


@given(configs(), st.integers(0, 60), st.integers(1, 3), st.integers(1, 5), dtypes)
def test_a_size_is_its_formula(impl, config, length, heads, width, dtype):
    carried = config.recent if config.carry_recent else 0
    n = max(0, length - carried) // BLOCK * BLOCK
    d, residual, recent = heads * width, length - n, min(n, config.recent - carried)
    heavy = min(n - recent, int(config.heavy * n))  # float holds these shares exactly
    e, sum_of_attention = dtype.itemsize, 8 if dtype == torch.float64 else 4
    scale = config.scales or (torch.float32 if dtype == torch.bfloat16 else dtype)
    groups = heads if config.value_group == "head" else 1
    remembered = n if config.mode != "append" else 0
    originals = n if config.mode == "oracle" else 0
    assert tuple(impl.hex_size(config, length, heads, width, dtype)) == (
        8 * d * math.ceil(config.bits * n / 32),
        2 * scale.itemsize * (d * (n > 0) + groups * n),
        2 * e * round(config.density * d) * (n - heavy - recent),
        2 * e * d * (heavy + recent),
        n,
        2 * e * d * residual,
        sum_of_attention * (residual + remembered),
        2 * e * d * originals,
    )


@pytest.mark.parametrize("tokens", [960, 5376])
def test_with_an_empty_buffer_ours_are_within_two_points_of_the_printed_sizes(impl, tokens):
    for row in impl.paper_size((tokens,)):
        assert abs(row.ours - row.paper) < 2, row


def test_printed_sizes_lie_between_ours_without_the_buffer_and_with_it(impl):
    buffers = [100 * (length % 96) / length for length in PROMPTS]
    for row in impl.paper_size():
        assert row.ours - sum(buffers) / 3 < row.paper < row.ours, row


@given(prompts)
def test_a_size_beside_a_printed_one_is_the_mean_over_prompts(impl, prompts):
    for row in impl.paper_size(prompts):
        sizes = [impl.hex_size(impl.hex_preset(row.method), length).total for length in prompts]
        shares = [
            100 * size / (4 * 1024 * length) for size, length in zip(sizes, prompts, strict=True)
        ]
        assert row.ours == pytest.approx(sum(shares) / len(prompts))
