"""Error and bytes of each setting: HEX §4.4 and Appendix A.5."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close
from spec_tests.hex.cache.feed_stream import slice_stream
from spec_tests.hex.cache.strategies import BLOCK, configs, streams


@pytest.mark.spec("HEX-A.5")
@settings(max_examples=10)  # each example decodes token by token, twice
@given(streams(2 * BLOCK + 3, batch=((), (2,))), configs(), st.integers(0, 2 * BLOCK))
def test_a_row_is_the_mean_deviation_of_the_cache_as_it_stood(impl, stream, config, prompt):
    (row,) = impl.sensitivity(*stream, prompt, (config,))
    cache, deviations = impl.hex_prefill(*slice_stream(stream, 0, prompt), config), []
    for t in range(prompt, 2 * BLOCK + 3):
        query, *new = slice_stream(stream, t, t + 1)
        seen = [torch.cat([old, x], -2) for old, x in zip(impl.hex_read(cache), new, strict=True)]
        deviations.append(impl.attention_error(query, *slice_stream(stream[1:], 0, t + 1), *seen))
        cache = impl.hex_append(cache, query, *new)
    mean = torch.cat(deviations, -1).double().mean()
    # differences of outputs round as the outputs do
    assert_close(row.error, mean, stream[2].abs().amax())
    assert row.bytes == impl.hex_bytes(cache).total
    assert row.percent == 100 * row.bytes / (2 * stream[1].nbytes)
