"""Functions that feed streams to the streaming cache in its laws."""

from typing import Any

from hypothesis import assume
from torch import Tensor

from reference import HexBlock, HexCache, HexConfig
from reference.hex.expander import static_mask
from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.hex.cache.strategies import KV_HEADS, WIDTH
from spec_tests.strategies import needs_expander_mask


def slice_stream(stream: tuple[Tensor, ...], start: int, stop: int | None = None) -> list[Tensor]:
    """Return the queries, keys and values of a range of tokens."""
    return [x[..., start:stop, :] for x in stream]


def prefill_and_append(
    impl: Any, stream: tuple[Tensor, ...], config: HexConfig, prompt: int
) -> HexCache:
    """Read a prompt, and append the rest of the stream in one call."""
    cache = impl.hex_prefill(*slice_stream(stream, 0, prompt), config)
    return impl.hex_append(cache, *slice_stream(stream, prompt))


def compressed(
    impl: Any, span: list[Tensor], config: HexConfig, dynamic: Tensor, tokens: int
) -> HexBlock:
    """Return the block of a span of keys and values that a cache with these settings makes."""
    static = static_mask(config, tokens, KV_HEADS * WIDTH)
    assume(impl.draws_alike or not needs_expander_mask(config))  # another module draws another mask
    return impl.hex_compress(*span, static, dynamic, config.bits, config.value_group, config.scales)


def assert_same_cache(actual: HexCache, expected: HexCache) -> None:
    """Assert that caches are equal; attention mass may differ by the order of its sum."""
    blank = dict(mass=expected.mass, residual_mass=expected.residual_mass)
    assert_equal(actual._replace(**blank), expected)
    for name in blank:
        mass = getattr(expected, name)
        largest = mass.abs().max() if mass.numel() else 0.0
        assert_close(getattr(actual, name), mass.double(), largest)
