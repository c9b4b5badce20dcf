"""How the laws of the streaming cache feed it."""

from itertools import pairwise
from typing import Any

from hypothesis import assume
from torch import Tensor

from reference import HexBlock, HexCache, HexConfig
from reference.hex.expander import static_mask
from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.hex.cache.strategies import KV_HEADS, WIDTH
from spec_tests.strategies import needs_expander_mask


def slice_stream(stream: tuple[Tensor, ...], start: int, stop: int | None = None) -> list[Tensor]:
    """Return a stretch of tokens of queries, keys and values."""
    return [x[..., start:stop, :] for x in stream]


def prefill_and_append(
    impl: Any, stream: tuple[Tensor, ...], config: HexConfig, prompt: int
) -> HexCache:
    """Read a prompt, and append the rest of the stream at once."""
    cache = impl.hex_prefill(*slice_stream(stream, 0, prompt), config)
    return impl.hex_append(cache, *slice_stream(stream, prompt))


def compressed(
    impl: Any, span: list[Tensor], config: HexConfig, dynamic: Tensor, tokens: int
) -> HexBlock:
    """Return the block of a span of keys and values, in the way of a cache with these settings."""
    static = static_mask(config, tokens, KV_HEADS * WIDTH)
    assume(
        impl.draws_alike or not needs_expander_mask(config)
    )  # the mask of others is of their draw
    return impl.hex_compress(*span, static, dynamic, config.bits, config.value_group, config.scales)


def append_in_cuts(
    impl: Any, cache: HexCache, stream: tuple[Tensor, ...], start: int, cuts: list[int]
):
    """Append the tokens from `start` on, cut at the given places."""
    bounds = [start, *sorted(start + cut for cut in cuts), stream[1].shape[-2]]
    for low, high in pairwise(bounds):
        cache = impl.hex_append(cache, *slice_stream(stream, low, high))
    return cache


def assert_same_cache(actual: HexCache, expected: HexCache) -> None:
    """Everything is equal but attention mass, a sum whose order is free."""
    blank = dict(mass=expected.mass, residual_mass=expected.residual_mass)
    assert_equal(actual._replace(**blank), expected)
    for name in blank:
        mass = getattr(expected, name)
        largest = mass.abs().max() if mass.numel() else 0.0
        assert_close(getattr(actual, name), mass.double(), largest)
