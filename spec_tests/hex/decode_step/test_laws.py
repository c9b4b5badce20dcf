"""A step of decoding with a HEX cache: HEX §3.1 on what §4.1 stores, and §5."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import reference
from spec_tests.accuracy import assert_as_accurate, assert_close, cast
from spec_tests.hex.attention.oracle import read
from spec_tests.hex.cache.feed_stream import assert_same_cache, slice_stream
from spec_tests.hex.cache.strategies import BLOCK, configs, half_precision_cache, streams
from spec_tests.inputs import INPUTS
from spec_tests.strategies import needs_expander_mask


@pytest.mark.spec("HEX-3.1a", "HEX-4.1b", "HEX-5a")
@given(INPUTS["hex_decode"])
def test_decoding_stores_what_appending_stores(impl, x):
    decoded = impl.hex_decode(**x)
    assert_same_cache(decoded.cache, impl.hex_append(**x))
    assert decoded.output.shape == x["queries"].shape


@pytest.mark.spec("HEX-3.1a", "HEX-5a")
@settings(max_examples=20)  # each example decodes token by token
@given(streams(3 * BLOCK, batch=((), (2,))), configs(), st.integers(0, 2 * BLOCK), st.data())
def test_a_decoded_token_reads_the_cache_before_it_and_itself(impl, stream, config, prompt, data):
    stream = (stream[0] / 8, *stream[1:])  # logits of a few units
    assume(impl.draws_alike or not needs_expander_mask(config))  # another module draws another mask
    cache = impl.hex_prefill(*slice_stream(stream, 0, prompt), config)
    stop = data.draw(st.integers(prompt, 3 * BLOCK))
    output = impl.hex_decode(cache, *slice_stream(stream, prompt, stop)).output
    for token in range(prompt, stop):
        queries, keys, values = slice_stream(stream, token, token + 1)
        here = output[..., token - prompt : token - prompt + 1, :]
        seen = dict(queries=queries, cache=cache, keys=keys, values=values)
        assert_as_accurate(here, read, seen)
        cache = impl.hex_append(cache, queries, keys, values)


@pytest.mark.spec("HEX-3.1a", "HEX-3.3a", "HEX-5a")
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("width", [4, 64])
def test_mass_and_output_over_a_cache_in_half_precision_are_of_unrounded_entries(impl, width, half):
    """Code times step plus minimum is between two numbers of half precision (E-H73)."""
    cache, stream = half_precision_cache(width, half, "full")
    new = [x[:, -1:].clone() for x in stream]
    exact = reference.hex_decode(cast(cache, torch.float64), *(x.double() for x in new))
    found = impl.hex_decode(cache, *new)
    assert_close(found.output, exact.output, 16.0)
    for after in (found.cache, impl.hex_append(cache, *new)):
        assert_close(after.mass, exact.cache.mass, 4.0)
        assert_close(after.residual_mass, exact.cache.residual_mass, 4.0)
