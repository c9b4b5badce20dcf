"""GEAR while decoding."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.hex.cache.feed_stream import slice_stream
from spec_tests.strategies import gaussian_tensor

pytestmark = pytest.mark.spec("HEX-GEAR")

SHAPES = st.sampled_from([(2,), (1,), (2, 1)])


@st.composite
def streams(draw):
    """A stream, the length of its prompt, the settings, and the ends of the decode calls.

    Most streams are long and wide enough for outliers in keys and values, and for errors.
    """
    block, prompt = draw(st.sampled_from([4, 3, 2, 1])), draw(st.sampled_from([5, 4, 3, 2, 1, 0]))
    tokens = prompt + draw(st.integers(0, 2 * block + 1))
    shape = (*draw(SHAPES), tokens, draw(st.sampled_from([4, 3, 2, 1])))
    settings = dict(
        bits=draw(st.sampled_from([2, 1, 3, 4])),
        value_bits=draw(st.sampled_from([None, 1, 3, 2])),
        outliers=draw(st.sampled_from([0.5, 0.0, 0.7])),
        rank=draw(st.sampled_from([1, 2, 4, 0])),
        decoded_rank=draw(st.sampled_from([1, 2, 0])),
        block=block,
        fill=draw(st.booleans()),
        seed=draw(st.integers(0, 9)),
        scales=draw(st.sampled_from([torch.float16, None])),
    )
    one_by_one = st.just([*range(prompt, tokens)])
    cuts = draw(st.lists(st.integers(prompt, tokens), max_size=3) | one_by_one)
    return (
        (draw(gaussian_tensor(*shape)), draw(gaussian_tensor(*shape))),
        prompt,
        settings,
        sorted(cuts),
    )


@given(streams())
def test_decoding_in_any_chunks_gives_the_same_cache(impl, x):
    stream, prompt, settings, cuts = x
    start = impl.gear_prefill(*slice_stream(stream, 0, prompt), **settings)
    once, cache = impl.gear_append(start, *slice_stream(stream, prompt)), start
    for low, high in pairwise([prompt, *cuts, stream[0].shape[-2]]):
        cache = impl.gear_append(cache, *slice_stream(stream, low, high))
    assert_equal(cache, once)


@given(streams())
def test_the_prompt_is_one_span_and_each_decoded_block_another(impl, x):
    stream, prompt, settings, _ = x
    block, rank, decoded = (settings.pop(n) for n in ("block", "rank", "decoded_rank"))
    ranks, value_bits = dict(rank=rank, decoded_rank=decoded), settings["value_bits"]
    cache = impl.gear_prefill(*slice_stream(stream, 0, prompt), **ranks, block=block, **settings)
    cache = impl.gear_append(cache, *slice_stream(stream, prompt))
    tokens = stream[0].shape[-2]
    starts = [*([0] if prompt else []), *range(prompt, tokens - block + 1, block)]
    stops = [*([prompt] if prompt else []), *range(prompt + block, tokens + 1, block)]
    ranks = [*([rank] if prompt else []), *[decoded] * (len(starts) - bool(prompt))]
    del settings["value_bits"]
    widths = settings.pop("bits"), value_bits
    widths = widths[0], value_bits or widths[0]
    both = cache.key_blocks, cache.value_blocks
    for raw, blocks, by, bits in zip(stream, both, ("channel", "token"), widths, strict=True):
        assert len(blocks) == len(starts)
        for stored, start, stop, r in zip(blocks, starts, stops, ranks, strict=True):
            alone = impl.gear_compress(raw[..., start:stop, :], by, bits, rank=r, **settings)
            assert_equal(stored, alone)


@given(streams(), st.sampled_from([True, False]))
def test_what_is_read_is_every_block_in_order_and_the_buffer_as_it_is(impl, x, exact):
    stream, prompt, settings, _ = x
    cache = impl.gear_prefill(*slice_stream(stream, 0, prompt), **settings)
    cache = impl.gear_append(cache, *slice_stream(stream, prompt))
    residual = (stream[0].shape[-2] - prompt) % settings["block"]
    blocks, buffers = (
        (cache.key_blocks, cache.value_blocks),
        (cache.residual_keys, cache.residual_values),
    )
    for raw, out, spans, buffer in zip(
        stream, impl.gear_read(cache, exact), blocks, buffers, strict=True
    ):
        assert out.shape == raw.shape
        assert_equal(buffer, raw[..., raw.shape[-2] - residual :, :])
        restored = [impl.gear_reconstruct(span, exact) for span in spans]
        assert_close(out, torch.cat([*restored, buffer], -2).double(), 8.0)
