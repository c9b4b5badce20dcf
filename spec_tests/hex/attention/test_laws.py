"""Attention over a HEX cache: HEX §3.1 on what §4.1 stores, and §5."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import optimized
import reference
from optimized.vector.hex import attention, compress, packing, stacked_cache
from optimized.vector.hex.decode_step import decode_in_layout
from optimized.vector.hex.stacked_cache import StackedCache
from reference.hex.cache import read_unrounded
from spec_tests.accuracy import assert_as_accurate, assert_close, assert_equal, cast
from spec_tests.attention.oracle import merged
from spec_tests.attention.strategies import log_sum_exp
from spec_tests.hex.attention.oracle import read, sum_restored_weights
from spec_tests.hex.attention.strategies import hex_attention_inputs
from spec_tests.hex.cache.strategies import BLOCK, half_precision_cache
from spec_tests.kernels.hex_cache_strategy import has_blocks, wide_cache_inputs
from spec_tests.strategies import needs_expander_mask

unpadded = hex_attention_inputs(padded=st.just(False))


def reads_alike(impl, cache):
    """Whether a module keeps the same entries: another module draws another expander mask."""
    return impl.draws_alike or not needs_expander_mask(cache)


@pytest.mark.spec("HEX-3.1a", "HEX-5a")
@given(unpadded)
def test_attention_over_a_cache_is_attention_over_what_it_restores(impl, x):
    assume(reads_alike(impl, x["cache"]))
    attended = impl.hex_attention(**x)
    inputs = {name: x[name] for name in ("queries", "cache", "causal", "scale")}
    assert_as_accurate(attended.output, read, inputs)
    assert (attended.mass is not None) == x["mass"]
    if x["mass"]:
        assert_as_accurate(attended.mass, sum_restored_weights, inputs)


@pytest.mark.spec("HEX-3.1a", "HEX-5a")
@settings(max_examples=8)
@given(wide_cache_inputs(bits=(4,)).filter(has_blocks))
def test_heads_of_a_models_width_read_what_is_restored(impl, x):
    """One query of every head over up to three blocks of heads that are wide enough for kernels."""
    assume(reads_alike(impl, x["cache"]))
    attended = impl.hex_attention(**x, mass=True)
    inputs = x | dict(causal=True, scale=None)
    assert_as_accurate(attended.output, read, inputs)
    assert_as_accurate(attended.mass, sum_restored_weights, inputs)


@pytest.mark.spec("HEX-3.1a", "HEX-5a")
@pytest.mark.parametrize("bits", range(1, 9))
def test_codes_of_every_width_are_read_whole_in_heads_of_a_models_width(impl, bits):
    """Values of both signs; the keys of the second head have a large mean."""
    stream = torch.randn(3, 2, 129, 64, generator=torch.Generator().manual_seed(bits))
    stream[0] /= 4
    stream[1, 1] += 10
    config = reference.HexConfig(bits=bits, density=0.0, heavy=0.02, recent=2, block=32)
    cache = optimized.hex_prefill(*(x[:, :-1] for x in stream), config=config)
    x = dict(queries=stream[0][:, -1:].clone(), cache=cache)
    attended = impl.hex_attention(**x, mass=True)
    assert_as_accurate(attended.output, read, x | dict(causal=True, scale=None))
    assert_as_accurate(attended.mass, sum_restored_weights, x | dict(causal=True, scale=None))


@pytest.mark.spec("HEX-3.1a", "HEX-5a")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("offset", [64.0, -256.0])
@pytest.mark.parametrize("density", [0.0, pytest.param(0.0625, marks=pytest.mark.ours_only)])
def test_a_channel_far_from_the_others_costs_no_more_than_its_size(impl, density, offset, dtype):
    """One channel of the keys and one of the values are offset; logits reach some hundreds."""
    stream = torch.randn(3, 2, 130, 64, generator=torch.Generator().manual_seed(0))
    stream[0] *= 1024 / abs(offset)
    stream[1, ..., 5] += offset
    stream[2, ..., 3] += offset
    config = reference.HexConfig(bits=4, density=density, heavy=density / 2, recent=2, block=96)
    cache = optimized.hex_prefill(*stream[..., :-1, :].to(dtype), config=config)
    queries = stream[0][:, -1:].to(dtype)
    x = dict(queries=queries, cache=cache)
    found = impl.hex_attention(**x, mass=True)
    assert_as_accurate(found.mass, sum_restored_weights, x | dict(causal=True, scale=None))
    exact = read(queries.double(), cast(cache, torch.float64))
    # the magnitudes of a logit's terms; an error of a logit moves a mean of values of size 4
    logit = (8 * queries.abs().sum(-1) + abs(offset) * queries[..., 5].abs()).max() / 8
    assert_close(found.output, exact, 4 * logit.double() + abs(offset))


@pytest.mark.spec("HEX-3.1a", "HEX-5a")
def test_what_comes_last_may_weigh_most(impl):
    """The largest keys are in the residual buffer, so that the weights of codes become small."""
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(16, 150, 64, generator=generator) / 4
    keys, values = torch.randn(2, 2, 150, 64, generator=generator) + 1
    keys[:, -9:] *= 5
    config = reference.HexConfig(bits=4, density=0.0, heavy=0.0, recent=0, block=96)
    cache = reference.hex_prefill(queries[:, :-1], keys[:, :-1], values[:, :-1], config=config)
    x = dict(queries=queries[:, -1:].clone(), cache=cache)
    assert_as_accurate(impl.hex_attention(**x).output, read, x | dict(causal=True, scale=None))


@pytest.mark.spec("HEX-3.1a", "HEX-5a")
@given(hex_attention_inputs(padded=st.just(True)))
def test_padding_draws_nothing_and_a_query_at_padding_reads_nothing(impl, x):
    attended = impl.hex_attention(**x | dict(mass=True))
    assert_equal(attended.mass[~x["valid"]], torch.zeros_like(attended.mass[~x["valid"]]))
    count, tokens = x["queries"].shape[-2], x["valid"].shape[-1]
    real = x["valid"].sum(-1)[..., None, None]
    left = torch.arange(count)[:, None] + tokens - count if x["causal"] else tokens - 1
    blind = (left < tokens - real).expand(*attended.output.shape[:-3], count, 1)[..., None, :, :]
    nothing = attended.output.masked_fill(~blind, 0)
    assert_equal(nothing, torch.zeros_like(nothing))


@pytest.mark.extension
@pytest.mark.spec("HEX-3.1a")
@given(hex_attention_inputs())
def test_the_log_sum_exp_is_that_of_every_logit_that_a_query_sees(impl, x):
    """At padding it is minus infinity."""
    assume(reads_alike(impl, x["cache"]))
    attended = impl.hex_attention(**x, log_sum_exp=True)
    (keys, _), queries = read_unrounded(x["cache"]), x["queries"].double()
    exact = log_sum_exp(queries, keys, x["causal"], x["scale"], x["valid"])
    assert_close(attended.log_sum_exp, exact, 64.0)
    assert impl.hex_attention(**x).log_sum_exp is None


@pytest.mark.extension
@pytest.mark.spec("HEX-3.1a")
@settings(max_examples=20)
@given(unpadded | wide_cache_inputs(bits=(4,)), st.integers(0, 3))
def test_attention_to_a_cache_merges_with_attention_to_other_tokens(impl, x, others):
    assume(reads_alike(impl, x["cache"]))
    queries, cache = cast((x["queries"], x["cache"]), torch.float32)
    shape = (*cache.residual_keys.shape[:-2], others, queries.shape[-1])
    keys, values = torch.randn(2, *shape, generator=torch.Generator().manual_seed(others))
    x = dict(queries=queries, causal=False, scale=x.get("scale"))
    attended = impl.hex_attention(cache=cache, **x, log_sum_exp=True)
    plain = reference.attention(keys=keys, values=values, **x), log_sum_exp(keys=keys, **x)
    whole = read(cache=cache, keys=keys, values=values, **x)
    assert_close(merged((attended.output, attended.log_sum_exp), plain), whole.double(), 64.0)


@pytest.mark.spec("HEX-3.1a", "HEX-5a")
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("width", [4, 64])
def test_attention_over_a_cache_in_half_precision_reads_it_unrounded(impl, width, half):
    """Code times step plus minimum is between two numbers of half precision (E-H73)."""
    cache, stream = half_precision_cache(width, half)
    queries = stream[0][:, -1:].float()
    attended = impl.hex_attention(queries, cache, mass=True)
    exact = reference.hex_attention(queries.double(), cast(cache, torch.float64), mass=True)
    assert exact.mass is not None
    assert attended.output.dtype == attended.mass.dtype == torch.float32
    assert_close(attended.output, exact.output, 16.0)
    assert_close(attended.mass, exact.mass, 4.0)
    short = impl.hex_attention(queries.to(half), cache, mass=True)
    assert_equal(short.output.dtype, half)
    assert_equal(short.mass.dtype, torch.float32)
    assert_close(short.output, exact.output, 16.0)
    assert_equal(impl.hex_attention(queries.double(), cache, mass=True).mass.dtype, torch.float64)


OWN_BITS = pytest.param(dict(value_bits=2), marks=pytest.mark.extension)


@pytest.mark.spec("HEX-3.1a", "HEX-5a")
@pytest.mark.parametrize("change", [dict(bits=3), dict(value_group="head"), OWN_BITS], ids=str)
def test_blocks_of_several_settings_are_read_together(impl, change):
    """A cache whose settings change has blocks of the old and of the new settings."""
    generator = torch.Generator().manual_seed(0)
    queries, *streams = torch.randn(3, 2, 4 * BLOCK, 4, generator=generator)
    parts = [[x[:, i * BLOCK :][:, :BLOCK] for x in (queries, *streams)] for i in range(4)]
    config = reference.HexConfig(bits=4, block=BLOCK, density=0.0, recent=2)
    cache = impl.hex_prefill(*parts[0], config=config)
    cache = cache._replace(config=config._replace(**change))
    for part in parts[1:]:
        cache = impl.hex_append(cache, *part)
    assert len({block.bits for block in cache.blocks}) == 1 + ("value_group" not in change)
    inputs = dict(queries=queries[:, -1:].clone(), cache=cache)
    attended = impl.hex_attention(**inputs, mass=True)
    assert_as_accurate(attended.output, read, inputs)
    assert_as_accurate(attended.mass, sum_restored_weights, inputs | dict(causal=True, scale=None))
    decoded = impl.hex_decode(cache, *(x[:, :1] for x in parts[0]))
    assert decoded.cache.residual_mass.isfinite().all()


def quarter(tokens: int) -> tuple[torch.Tensor, reference.HexCache]:
    """Return a query, and a cache that keeps a mask of a quarter of its entries."""
    queries, keys, values = torch.randn(3, 2, tokens, 6, generator=torch.Generator().manual_seed(1))
    config = reference.HexConfig(bits=4, block=12, density=0.25, recent=2)
    return queries[:, -1:], optimized.hex_prefill(queries, keys, values, config)


def test_the_twin_moves_no_code_to_its_place(monkeypatch):
    queries, cache = quarter(24)
    expected = reference.hex_attention(queries, cache).output
    for module, name in ((compress, "restored"), (packing, "unpack_bits")):
        monkeypatch.delattr(module, name)
    assert_close(optimized.hex_attention(queries, cache).output, expected.double(), 4.0)


def test_a_step_makes_no_mask_anew_however_many_lengths_take_turns(monkeypatch):
    calls, stacked_caches = [quarter(12 * blocks) for blocks in range(1, 67)], []
    for queries, cache in calls:
        optimized.hex_attention(queries, cache)
        stacked_caches.append(decode_in_layout(cache, *[queries] * 3)[1])
    for module in (attention, stacked_cache):
        monkeypatch.delattr(module, "static_mask")
    for (queries, cache), stacked in zip(calls, stacked_caches, strict=True):
        optimized.hex_attention(queries, cache)
        assert isinstance(stacked, StackedCache)
        decode_in_layout(stacked, *[queries] * 3)
