"""The layout of the kernels: each bit has a place, and what is laid out comes back."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings

from optimized import HexConfig, hex_prefill, stored_bytes
from optimized._dispatch import tensors
from optimized.bench.launch_recorder import Operators
from optimized.hex_packed_layout import AHEAD, COUNTED, TILE, PackedCache, places
from optimized.kernels.hex._sparse_entries import tables
from optimized.vector.hex._packed_products import bit_masks, fields, slots
from optimized.vector.hex.stacked_cache import StackedCache
from spec_tests.accuracy import assert_equal
from spec_tests.hex.cache.strategies import MODES
from spec_tests.kernels.hex_cache_strategy import has_blocks, wide_cache_inputs

REMEMBERED: dict[str, Any] = {
    "places of three bits": lambda gpu: places.__wrapped__(3, 64, "keys", gpu),
    "places of four bits": lambda gpu: places.__wrapped__(4, 64, "values", gpu),
    "masks": lambda gpu: bit_masks.__wrapped__(fields(3).masks, 96, gpu),
    "slots": lambda gpu: slots.__wrapped__(3, 96, gpu),
    "tables": lambda gpu: tables.__wrapped__(HexConfig(density=0.125), (96,), 2, 64, gpu),
}


@pytest.mark.parametrize("name", REMEMBERED)
def test_what_is_remembered_is_known_before_it_is_copied_to_a_gpu(name):
    """Operations only record while a graph is captured, so a value cached then would be unset."""
    gpu = torch.device("meta")
    with Operators(gpu) as operators:
        found = REMEMBERED[name](gpu)
    assert 0 < operators.count <= len([*tensors(found)]), "more than copies"


every_layout = pytest.mark.parametrize("layout", [PackedCache, StackedCache])


@every_layout
@settings(max_examples=8)
@given(x=wide_cache_inputs(modes=MODES))
def test_a_cache_comes_back_bit_for_bit(layout, x):
    if layout is PackedCache and not has_blocks(x):
        with pytest.raises(ValueError, match="cache must have at least one block"):
            layout.of(x["cache"])
    else:
        assert_equal(layout.of(x["cache"]).cache(), x["cache"])


@pytest.mark.parametrize("bits", range(1, 9))
def test_a_cache_comes_back_from_any_bits_and_channels_or_is_refused(bits):
    generator, settings = torch.Generator().manual_seed(0), HexConfig(bits=bits, density=0.0)
    unit = {1: 32, 2: 16, 4: 8, 8: 4}.get(bits, 1000)
    for width in (1, 4, 8, 12, 16, 20, 32, 48, 64, 80, 128, 160, 256, 512):
        cache = hex_prefill(*torch.randn(3, 2, TILE, width, generator=generator), config=settings)
        assert_equal(StackedCache.of(cache).cache(), cache)
        if width % unit == 0 or (bits == 3 and width in (16, 32, 64, 128, 256)):
            assert_equal(PackedCache.of(cache).cache(), cache)
        else:
            with pytest.raises(ValueError, match=f"got {bits} bits and {width} channels"):
                PackedCache.of(cache)


def one_by_one(cache: Any, first: int = 1, layout: Any = PackedCache) -> Any:
    """Return the layout of a cache's first blocks, with the others appended one by one."""
    packed = layout.of(cache._replace(blocks=cache.blocks[:first]))
    for block in cache.blocks[first:]:
        packed = packed.followed(block, packed.rest)
    return packed


def several(cache, count):
    """Return a cache with its last block repeated `count` more times."""
    return cache._replace(blocks=cache.blocks + cache.blocks[-1:] * count)


with_blocks = wide_cache_inputs().filter(has_blocks)


def parts(packed: Any) -> list[Any]:
    """Return the tensors of each run of a layout, without memory that is reserved ahead."""
    if isinstance(packed, StackedCache):
        return [*packed.runs]
    return [[getattr(packed.spans, name) for name in sum(COUNTED, ())], packed.spans.reach]


@every_layout
@settings(max_examples=8)
@given(x=with_blocks)
def test_blocks_that_follow_lie_as_though_laid_out_at_once(layout, x):
    cache = several(x["cache"], 3)
    at_once = layout.of(cache)
    for first in range(layout is PackedCache, 2):
        packed = one_by_one(cache, first, layout)
        assert packed.blocks == len(cache.blocks)
        assert_equal(packed.cache(), cache)
        assert_equal(parts(packed), parts(at_once))


@every_layout
@settings(max_examples=6)
@given(x=with_blocks)
def test_two_caches_that_go_on_from_one_leave_each_other_alone(layout, x):
    cache = x["cache"]
    last = cache.blocks[-1]
    common = one_by_one(cache, 1, layout)
    caches = [
        several(cache, 1),
        cache._replace(blocks=(*cache.blocks, last._replace(key_steps=last.key_steps + 1))),
    ]
    followed = [common.followed(longer.blocks[-1], common.rest) for longer in caches]
    assert_equal(common.cache(), cache)
    assert_equal([packed.cache() for packed in followed], caches)


@settings(max_examples=3)
@given(with_blocks)
def test_memory_is_taken_ahead_and_seldom(x):
    cache = x["cache"]
    packed, addresses = one_by_one(cache), []
    last = stored_bytes(PackedCache.of(cache._replace(blocks=cache.blocks[-1:])).spans)
    for _ in range(50):
        packed = packed.followed(cache.blocks[-1], packed.rest)
        addresses.append(packed.spans.key_words.data_ptr())
        tight = sum(getattr(packed.spans, name).nbytes for name in ("reach", *sum(COUNTED, ())))
        spare = 1 + packed.blocks // AHEAD
        assert tight <= stored_bytes(packed.spans) <= tight + spare * last
    assert len(set(addresses)) < 20
