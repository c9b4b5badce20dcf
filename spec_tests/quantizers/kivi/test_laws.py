"""KIVI, which HEX's Table 2 compares with."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.quantizers.kivi import oracle
from spec_tests.quantizers.kivi.strategies import kivi_settings, kivi_streams
from spec_tests.strategies import gaussian_tensor

pytestmark = pytest.mark.spec("HEX-KIVI")

SHAPES = st.sampled_from([(1,), (2,), (2, 1)])


@st.composite
def gaussian(draw, most=3):
    """A stream of Gaussian numbers, and its settings."""
    settings = draw(kivi_settings())
    tokens = draw(st.integers(1, most * settings["residual"] + 1))
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


def parts(stream, start, stop):
    """Return the keys and values of a range of tokens."""
    return [x[..., start:stop, :] for x in stream]


@given(gaussian())
def test_every_head_is_what_the_definition_gives_one_number_at_a_time(impl, x):
    keys, values, settings = x
    settings["scales"] = None
    restored = impl.kivi_read(impl.kivi_prefill(keys, values, **settings))
    layout = settings["bits"], settings["group"], settings["residual"]
    sides = zip((keys, values), restored, (oracle.kivi_keys, oracle.kivi_values), strict=True)
    for raw, out, alone in sides:
        expected = [alone(head.tolist(), *layout) for head in raw.flatten(0, -3)]
        exact = torch.tensor(expected, dtype=torch.float64)
        assert_close(out.flatten(0, -3), exact, raw.abs().amax())


@pytest.mark.spec("HEX-3.4b")
@given(st.sampled_from([2, 4, 8]), st.integers(1, 6), st.data())
def test_one_group_of_all_tokens_without_a_residual_is_kcvt(impl, bits, tokens, data):
    keys = data.draw(gaussian_tensor(2, 2, tokens, 2 * tokens))
    cache = impl.kivi_prefill(keys, keys, bits, group=tokens, residual=tokens)
    assert cache.residual_keys.shape[-2] == 0
    assert_close(impl.kivi_read(cache)[0], impl.kcvt(keys, keys, bits)[0], 2 * keys.abs().max())


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
    cache = impl.kivi_prefill(*parts(stream, 0, cuts[0]), **settings)
    for start, stop in pairwise([*cuts, tokens]):
        cache = impl.kivi_append(cache, *parts(stream, start, stop))
    assert_equal(cache, once)


@given(cut())
def test_append_never_changes_a_byte_of_earlier_groups(impl, x):
    stream, settings, (*_, first) = x
    before = impl.kivi_prefill(*parts(stream, 0, first), **settings)
    after = impl.kivi_append(before, *parts(stream, first, None))
    for side, axis in (("key", -3), ("value", -2)):
        for part in ("words", "steps", "minima"):
            old, new = (getattr(cache, f"{side}_{part}") for cache in (before, after))
            assert_equal(new.narrow(axis, 0, old.shape[axis]), old)


@given(gaussian_tensor(2, 9, 4), gaussian_tensor(2, 9, 4), st.integers(1, 4))
def test_codes_are_used_where_they_are_supposed_to_be(impl, keys, values, bits):
    restored = impl.kivi_read(impl.kivi_prefill(keys, values, bits, group=4, residual=4))
    assert ((restored[0] - keys)[..., :4, :].abs().amax(-2) > 0).all()
    assert ((restored[0] - keys)[..., 4:8, :].abs().amax(-2) > 0).all()
    assert ((restored[1] - values)[..., :5, :].abs().amax(-1) > 0).all()


@pytest.mark.parametrize("scales", [None, torch.float16, torch.float32])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_scales_are_stored_in_the_type_asked_for(impl, dtype, scales):
    x = torch.arange(12, dtype=dtype).reshape(1, 6, 2)
    cache = impl.kivi_prefill(x[:, :3], x[:, :3], 2, group=2, residual=2, scales=scales)
    for part in (cache, impl.kivi_append(cache, x[:, 3:], x[:, 3:])):
        own = dtype if dtype in (torch.float16, torch.float64) else torch.float32
        for stored in (part.key_steps, part.key_minima, part.value_steps, part.value_minima):
            assert stored.numel()
            assert stored.dtype == (scales or own)
        assert all(read.dtype == dtype for read in impl.kivi_read(part))
