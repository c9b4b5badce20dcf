"""A step of decoding with a HEX cache: HEX §3.1 on what §4.1 stores, and §5."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_as_accurate
from spec_tests.hex.attention.oracle import read
from spec_tests.hex.cache.draws import BLOCK, configs, streams
from spec_tests.hex.cache.streams import assert_same_cache, pieces
from spec_tests.inputs import INPUTS


@pytest.mark.spec("HEX-3.1a", "HEX-4.1b", "HEX-5a")
@given(INPUTS["hex_decode"])
def test_decoding_stores_what_appending_stores(impl, x):
    decoded = impl.hex_decode(**x)
    assert_same_cache(decoded.cache, impl.hex_append(**x))
    assert decoded.output.shape == x["queries"].shape


@pytest.mark.spec("HEX-3.1a", "HEX-5a")
@given(streams(3 * BLOCK, batch=((), (2,))), configs(), st.integers(0, 2 * BLOCK), st.data())
def test_a_decoded_token_reads_the_cache_before_it_and_itself(impl, stream, config, prompt, data):
    stream = (stream[0] / 8, *stream[1:])  # logits of a few units
    cache = impl.hex_prefill(*pieces(stream, 0, prompt), config)
    stop = data.draw(st.integers(prompt, 3 * BLOCK))
    output = impl.hex_decode(cache, *pieces(stream, prompt, stop)).output
    for token in range(prompt, stop):
        queries, keys, values = pieces(stream, token, token + 1)
        here = output[..., token - prompt : token - prompt + 1, :]
        seen = dict(queries=queries, cache=cache, keys=keys, values=values)
        assert_as_accurate(here, read, seen)
        cache = impl.hex_append(cache, queries, keys, values)
