"""KIVI, which HEX's Table 2 compares with."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.hex.cache.feed_stream import slice_stream
from spec_tests.quantizers.kivi import oracle
from spec_tests.quantizers.kivi.strategies import kivi_settings, kivi_streams
from spec_tests.strategies import gaussian_tensor

pytestmark = pytest.mark.spec("HEX-KIVI")

SHAPES = st.sampled_from([(1,), (2,), (2, 1)])


@st.composite
def gaussian(draw):
    """A stream of Gaussian numbers, and its settings, with groups of up to four members."""
    settings, wider = draw(kivi_settings()), draw(st.integers(1, 2))
    settings |= {name: wider * settings[name] for name in ("group", "residual")}
    tokens = draw(st.integers(1, 3 * settings["residual"] + 1))
    shape = (*draw(SHAPES), tokens, settings["group"] * draw(st.integers(1, 2)))
    return (
        draw(gaussian_tensor(*shape)).double(),
        draw(gaussian_tensor(*shape)).double() + 3,
        settings,
    )


@st.composite
def cut(draw):
    """A stream with exact codes, its settings, and the places at which calls cut it."""
    settings = draw(kivi_settings())
    tokens = draw(st.integers(1, 4 * settings["residual"]))
    stream = draw(kivi_streams(settings, tokens, SHAPES))
    one_by_one = st.just([*range(tokens)])
    cuts = draw(st.lists(st.integers(0, tokens), min_size=1, max_size=4) | one_by_one)
    return stream, settings, sorted(cuts)


@given(gaussian())
def test_every_head_is_what_the_definition_gives_one_number_at_a_time(impl, x):
    keys, values, settings = x
    settings["scales"] = None
    restored = impl.kivi_read(impl.kivi_prefill(keys, values, **settings))
    layout = settings["group"], settings["residual"]
    widths = settings["bits"], settings["value_bits"] or settings["bits"]
    definitions = oracle.kivi_keys, oracle.kivi_values
    sides = zip((keys, values), restored, definitions, widths, strict=True)
    for raw, out, alone, bits in sides:
        expected = [alone(head.tolist(), bits, *layout) for head in raw.flatten(0, -3)]
        exact = torch.tensor(expected, dtype=torch.float64)
        assert_close(out.flatten(0, -3), exact, raw.abs().amax())


@given(gaussian())
def test_keys_have_the_codes_of_their_bits_and_values_those_of_theirs(impl, x):
    *stream, settings = x
    bits, value_bits = settings["bits"], settings["value_bits"] or settings["bits"]
    both = impl.kivi_prefill(*stream, **settings | dict(value_bits=value_bits))
    of_keys, of_values = (
        impl.kivi_prefill(*stream, **settings | dict(bits=width, value_bits=None))
        for width in (bits, value_bits)
    )
    assert both.bits == (bits if bits == value_bits else (bits, value_bits))
    for name in both._fields[1:]:
        plain = of_values if "value" in name else of_keys
        assert_equal(getattr(both, name), getattr(plain, name))
    expected = impl.kivi_read(of_keys)[0], impl.kivi_read(of_values)[1]
    assert_equal(impl.kivi_read(both), expected)


@given(gaussian())
def test_the_last_tokens_are_exact(impl, x):
    *stream, settings = x
    tokens, residual = stream[0].shape[-2], settings["residual"]
    cache = impl.kivi_prefill(*stream, **settings)
    exact = tokens % residual, min(tokens, residual)
    buffers = cache.residual_keys, cache.residual_values
    for raw, out, buffer, count in zip(stream, impl.kivi_read(cache), buffers, exact, strict=True):
        assert out.shape == raw.shape
        assert_equal(buffer, raw[..., tokens - count :, :])
        assert_equal(out[..., tokens - count :, :], buffer)


@given(cut())
def test_any_chunks_of_tokens_give_the_same_cache(impl, x):
    stream, settings, cuts = x
    tokens = stream[0].shape[-2]
    once = impl.kivi_prefill(*stream, **settings)
    cache = impl.kivi_prefill(*slice_stream(stream, 0, cuts[0]), **settings)
    for start, stop in pairwise([*cuts, tokens]):
        cache = impl.kivi_append(cache, *slice_stream(stream, start, stop))
    assert_equal(cache, once)


@pytest.mark.parametrize("scales", [None, torch.float16, torch.float32])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_scales_are_stored_in_the_type_asked_for(impl, dtype, scales):
    x = torch.arange(12, dtype=dtype).reshape(1, 6, 2)
    cache = impl.kivi_prefill(x[:, :3], x[:, :3], 2, group=2, residual=2, scales=scales)
    own = dtype if dtype in (torch.float16, torch.float64) else torch.float32
    for after in (cache, impl.kivi_append(cache, x[:, 3:], x[:, 3:])):
        for stored in (after.key_steps, after.key_minima, after.value_steps, after.value_minima):
            assert stored.numel()
            assert stored.dtype == (scales or own)
        assert all(read.dtype == dtype for read in impl.kivi_read(after))
