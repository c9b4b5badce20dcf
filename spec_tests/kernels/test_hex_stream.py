"""A HEX cache keeps the kernels' layout while tokens are appended, alone and in a layer."""

from copy import deepcopy
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import optimized
import reference
from optimized import vector
from optimized.bench.launch_recorder import Operators, recorded
from optimized.hex_packed_layout import TILE, PackedCache
from optimized.kernels.hex._packed_decode_step import decode_packed
from optimized.kernels.hex.attention import attend_packed, decode, taken
from optimized.vector.hex import decode_step as processor
from optimized.vector.hex.stacked_cache import StackedCache
from reference.contract.enforce import trusted
from reference.hex.cache import add_tokens, buffer_space
from spec_tests.accuracy import assert_as_accurate, assert_equal
from spec_tests.hex.cache.strategies import MODES
from spec_tests.kernels.hex_cache_strategy import wide_cache_inputs
from spec_tests.kernels.interpreter import as_on_gpu

pytest.importorskip("transformers")
from optimized.models.attention import Softmax
from optimized.models.hex import HexLayer

hex_decode, hex_prefill = map(as_on_gpu, (vector.hex_decode, vector.hex_prefill))


def ready(*modes: str) -> Any:
    """Return a strategy for caches in the layout of the kernels, with few programs a head."""

    def laid_out(x: Any) -> bool:
        return x["cache"].config.block == TILE and taken(**x, valid=None)

    return wide_cache_inputs(bits=(4,), widths=(64,), groups=(1, 4), modes=modes).filter(laid_out)


def tokens(x, count, seed):
    """Return queries, keys and values of the next tokens."""
    *batch, heads, _, width = x["queries"].shape
    kv_heads = x["cache"].residual_keys.shape[-3]
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(*batch, heads + 2 * kv_heads, count, width, generator=generator) / 4
    return noise.to(x["queries"].dtype).split([heads, kv_heads, kv_heads], -3)


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=2)
@given(data=st.data())
def test_a_step_is_that_of_a_cache_laid_out_anew(mode, data):
    stepwise(data.draw(ready(mode)), decode_packed, hex_decode, PackedCache)


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=8)
@given(data=st.data())
def test_a_step_on_a_processor_is_that_of_a_cache_laid_out_anew(mode, data):
    """The first of these steps fills a block."""
    x = data.draw(wide_cache_inputs(modes=(mode,)))
    stepwise(x, processor.decode_in_layout, processor.hex_decode, StackedCache)


def stepwise(x: Any, decode_in_layout: Any, decode_anew: Any, layout: type) -> None:
    """Append two tokens to a layout, and compare it with a cache of the specification."""
    cache = x["cache"]
    missing = max(0, buffer_space(cache) - 1)
    laid_out = whole = add_tokens(cache, *tokens(x, missing, 0)[1:])
    for step in (1, 2):
        new = tokens(x, 1, step)
        output, laid_out = decode_in_layout(laid_out, *new)
        expected, whole = decode_anew(whole, *new)
        assert_equal(output, expected)
        assert isinstance(laid_out, layout)
        assert_equal(laid_out.cache(), whole)
    assert len(whole.blocks) > len(cache.blocks) or cache.config.mode != "append"


@settings(max_examples=2)
@given(ready(*MODES), st.integers(2, 5))
def test_several_tokens_fall_back(x, count):
    new = tokens(x, count, 0)
    output, after = decode_packed(PackedCache.of(x["cache"]), *new)
    assert isinstance(after, optimized.HexCache)
    inputs = dict(zip(("queries", "keys", "values"), new, strict=True), cache=x["cache"])
    assert_as_accurate(output, lambda **x: reference.hex_decode(**x).output, inputs)


SMALL = optimized.HexConfig(bits=4, density=0.0, heavy=0.0, recent=2)
SPARSE = SMALL._replace(density=0.125, heavy=0.02)
PROMPT = 2 * TILE - 3


def drawn(seed, count=1):
    """Return the queries, keys and values of some tokens of two heads."""
    return torch.randn(3, 1, 2, count, 64, generator=torch.Generator().manual_seed(seed)).unbind()


@pytest.fixture
def layer():
    """Yield a function that makes a layer after its prompt, as if on a GPU."""
    with patch("optimized.models.hex.on_gpu", lambda _: True):
        yield lambda kv, settings=SMALL: outputs_and_layer(
            HexLayer(settings, kv), 0, PROMPT, PROMPT
        )[1]


def outputs_and_layer(layer, start, stop, step=1) -> Any:
    """Return the outputs of a layer that attends to tokens as in a model, and the layer."""
    outputs = []
    for position in range(start, stop, step):
        query, key, value = drawn(position, step)
        layer.update(key, value)
        outputs.append(layer.attend(query, None, Softmax(0.125)))
    return torch.cat(outputs, 2), layer


def test_a_layer_on_a_gpu_holds_the_layout_and_answers_as_any_other(layer):
    mine, other = layer(optimized), layer(reference)
    found, expected = (outputs_and_layer(x, PROMPT, PROMPT + 5)[0] for x in (mine, other))
    assert isinstance(mine.held, PackedCache)
    assert_equal(mine.held.cache().blocks, other.held.blocks)
    assert_equal(mine.held.rest.residual_keys, other.held.residual_keys)
    torch.testing.assert_close(found, expected)
    everything = mine.held, mine.keys, mine.values
    assert optimized.stored_bytes(mine) == optimized.stored_bytes(everything)


@pytest.mark.parametrize("settings", [SMALL, SPARSE])
def test_a_step_of_a_layer_launches_four_kernels_and_nothing_else(settings, layer):
    """Unchecked, as every step after the first is."""
    mine = outputs_and_layer(layer(optimized, settings), PROMPT, PROMPT + 1)[1]
    query, key, value = drawn(0)
    with trusted(), recorded() as launches, Operators(query.device) as eager:
        mine.update(key, value)
        mine.attend(query, None, Softmax(0.125))
    assert (len(launches), eager.count) == (4, 0)


@pytest.mark.parametrize("settings", [SMALL, SMALL._replace(density=0.125, mode="full", period=9)])
def test_a_captured_step_may_be_replayed_until_the_block_is_full(settings):
    """As in a CUDA graph, the same launches read new tokens from the same memory."""
    _, keys, values = drawn(0, PROMPT)
    whole = hex_prefill(keys, keys, values, settings)
    packed, inputs = PackedCache.of(whole).in_room(), torch.empty(3, 1, 2, 1, 64)
    with trusted(), recorded() as launches:
        output = decode(inputs[0], inputs[1], inputs[2], packed)
    for step in range(buffer_space(whole)):
        inputs.copy_(torch.stack(drawn(step)) / 4)
        for launch in launches:
            launch.kernel[launch.grid](**launch.arguments, **launch.options)
        packed = packed.grown()
        expected, whole = hex_decode(whole, *inputs.clone())
        assert_equal(output, expected)
        if buffer_space(packed.rest):
            assert_equal(packed.cache(), whole)
    assert len(whole.blocks) == 2


def stepped(settings=SMALL, steps=1) -> Any:
    """Return a cache in the layout of the kernels after some steps; the ninth fills a block."""
    _, keys, values = drawn(0, 2 * TILE - 9)
    cache: Any = hex_prefill(keys, keys, values, settings)
    for step in range(steps):
        cache = decode_packed(cache, *drawn(step))[1]
    return cache


def test_a_copied_layer_goes_on_by_itself(layer):
    mine = outputs_and_layer(layer(optimized), PROMPT, PROMPT + 1)[1]
    outputs, copied = outputs_and_layer(deepcopy(mine), PROMPT + 1, PROMPT + 6)
    assert_equal(outputs_and_layer(mine, PROMPT + 1, PROMPT + 6)[0], outputs)
    assert_equal(mine.held.cache(), copied.held.cache())


@pytest.mark.parametrize("block", [False, True])
def test_a_cache_that_has_gone_on_without_its_owner_is_refused(block):
    """Also after a block, when the residual buffer has as many tokens again."""
    cache = newest = stepped()
    own = cache.settled()
    query, *_ = new = drawn(1)
    for _ in range(buffer_space(cache.rest) if block else 1):
        newest: Any = decode_packed(newest, *new)[1]
    while block and newest.held < cache.held:
        newest = newest.grown()
    assert (newest.blocks > cache.blocks) == (newest.held == cache.held) == block
    calls = (
        lambda: decode_packed(cache, *new),
        lambda: attend_packed(query, cache),
        *(cache.cache, cache.settled, cache.in_room, cache.grown),
    )
    for call in calls:
        with pytest.raises(ValueError, match="cache must be the newest in its memory"):
            call()
    assert own.cache().residual_keys.shape[-2] == 88


def test_a_prompt_in_inference_mode_goes_on_outside():
    with torch.inference_mode():
        cache: Any = stepped()
    for step in range(1, 10):  # fills a block
        cache = decode_packed(cache, *drawn(step))[1]
    assert cache.blocks == 2
