"""Attention over a HEX cache: HEX §3.1 on what §4.1 stores, and §5."""

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import optimized
import reference
from optimized.vector.hex import attention, laid, packing
from optimized.vector.hex.decode import decoded
from optimized.vector.hex.laid import Laid
from spec_tests.accuracy import assert_as_accurate, assert_close, assert_equal
from spec_tests.hex.attention.draws import asked
from spec_tests.hex.attention.oracle import read, restored_mass
from spec_tests.hex.cache.draws import BLOCK
from spec_tests.kernels.wide import coded, wide

unpadded = asked(padded=st.just(False))


@pytest.mark.spec("HEX-3.1a", "HEX-5a")
@given(unpadded)
def test_attention_over_a_cache_is_attention_over_what_it_restores(impl, x):
    attended = impl.hex_attention(**x)
    asking = {name: x[name] for name in ("queries", "cache", "causal", "scale")}
    assert_as_accurate(attended.output, read, asking)
    assert (attended.mass is not None) == x["mass"]
    if x["mass"]:
        assert_as_accurate(attended.mass, restored_mass, asking)


@pytest.mark.spec("HEX-3.1a", "HEX-5a")
@settings(max_examples=8)
@given(wide(bits=(4,)).filter(coded))
def test_heads_of_a_models_width_read_what_is_restored(impl, x):
    """A query of every head over up to three blocks: what kernels are made for."""
    attended = impl.hex_attention(**x, mass=True)
    asking = x | dict(causal=True, scale=None)
    assert_as_accurate(attended.output, read, asking)
    assert_as_accurate(attended.mass, restored_mass, asking)


@pytest.mark.spec("HEX-3.1a", "HEX-5a")
@pytest.mark.parametrize("part", ["keys", "values", "logits"])
@pytest.mark.parametrize("density", [0.0, 0.125])
def test_numbers_far_below_one_are_read(impl, part, density):
    """Steps of which the inverse, in what half precision holds, is no float."""
    generator = torch.Generator().manual_seed(0)
    stream = torch.randn(3, 1, 97, 64, generator=generator).bfloat16()
    stream[1 + (part == "values")] *= 2.0**-120
    if part == "logits":
        stream[0] *= 2.0**120
    config = reference.HexConfig(bits=4, density=density, heavy=0.0, recent=0, block=32)
    cache = reference.hex_prefill(*(x[:, :-1] for x in stream), config=config)
    x = dict(queries=stream[0][:, -1:].clone(), cache=cache)
    assert_as_accurate(impl.hex_attention(**x).output, read, x | dict(causal=True, scale=None))


@pytest.mark.spec("HEX-3.1a", "HEX-5a")
@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("mean", [0.0, 10.0])
def test_what_is_read_may_be_far_smaller_than_the_least_code(impl, bits, mean):
    """Values of both signs cancel, and keys have much in common: neither costs a bit."""
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        stream = torch.randn(3, 2, 129, 64, generator=generator)
        stream[0] /= 4
        stream[1] += mean
        config = reference.HexConfig(bits=bits, density=0.0, heavy=0.02, recent=2, block=32)
        cache = optimized.hex_prefill(*(x[:, :-1] for x in stream), config=config)
        x = dict(queries=stream[0][:, -1:].clone(), cache=cache)
        attended = impl.hex_attention(**x, mass=True)
        assert_as_accurate(attended.output, read, x | dict(causal=True, scale=None))
        assert_as_accurate(attended.mass, restored_mass, x | dict(causal=True, scale=None))


@pytest.mark.spec("HEX-3.1a", "HEX-5a")
@pytest.mark.parametrize("part", ["keys", "least keys", "values"])
@pytest.mark.parametrize(
    ("width", "density", "power"),
    [
        (16, 0.0, 12),
        (16, 0.0, 24),
        (16, 0.5, 12),
        (16, 0.5, 24),
        (64, 0.0, 24),
        (64, 0.0625, 8),
        (64, 0.0625, 12),
    ],
)
def test_loud_ones_leave_the_others_what_they_are(impl, width, part, density, power):
    """A key that no query looks at, a channel of the values: the others have one code."""
    sign = -1 if part == "least keys" else 1
    generator = torch.Generator().manual_seed(1)
    stream = torch.randn(3, 1, 97, width, generator=generator)
    stream[0, :, -1] = -sign * stream[0, :, -1].abs()
    if part != "values":
        stream[1, :, 5] = sign * stream[1, :, 5].abs() * 2.0**power
    else:
        stream[2, :, :, 3] = stream[2, :, :, 3].abs() * 2.0**power
    config = reference.HexConfig(bits=4, density=density, heavy=0.0, recent=0, block=96, near=True)
    cache = reference.hex_prefill(*(x[:, :-1] for x in stream), config=config)
    x: Any = dict(queries=stream[0][:, -1:].clone(), cache=cache)
    attended = impl.hex_attention(**x, mass=True)
    assert_as_accurate(attended.output, read, x | dict(causal=True, scale=None))
    assert_as_accurate(attended.mass, restored_mass, x | dict(causal=True, scale=None))
    quiet = [channel for channel in range(width) if channel != 3]
    keys, values = (part.double() for part in reference.hex_read(cache))
    exact = reference.attention(x["queries"].double(), keys, values)
    assert_close(attended.output[..., quiet], exact[..., quiet], 4.0)


@pytest.mark.spec("HEX-3.1a", "HEX-5a")
def test_gradients_of_queries_are_those_of_what_is_restored(impl):
    generator = torch.Generator().manual_seed(0)
    stream = torch.randn(3, 2, 97, 16, generator=generator)
    config = reference.HexConfig(bits=4, density=0.25, heavy=0.02, recent=2, block=32)
    cache = reference.hex_prefill(*(x[:, :-1] for x in stream), config=config)
    query = stream[0][:, -1:].clone().requires_grad_()
    wide = query.detach().double().requires_grad_()
    impl.hex_attention(query, cache).output.sum().backward()
    keys, values = (part.double() for part in reference.hex_read(cache))
    reference.attention(wide, keys, values).sum().backward()
    assert query.grad is not None
    assert wide.grad is not None
    assert_close(query.grad, wide.grad, 4.0)


@pytest.mark.spec("HEX-3.1a", "HEX-5a")
@pytest.mark.parametrize("power", [-118, 125])
@pytest.mark.parametrize("density", [0.0, 0.125])
def test_values_of_both_signs_are_read_wherever_floats_end(impl, power, density):
    generator = torch.Generator().manual_seed(0)
    stream = torch.randn(3, 2, 97, 64, generator=generator).clamp(-3.9, 3.9)
    stream[2] *= 2.0**power
    config = reference.HexConfig(bits=4, density=density, heavy=0.0, recent=0, block=32)
    cache = reference.hex_prefill(*(x[:, :-1] for x in stream), config=config)
    x = dict(queries=stream[0][:, -1:].clone(), cache=cache)
    with np.errstate(over="ignore"):  # a kernel is judged by what it hands out
        attended = impl.hex_attention(**x)
    assert_as_accurate(attended.output, read, x | dict(causal=True, scale=None))


@pytest.mark.spec("HEX-3.1a", "HEX-5a")
def test_what_comes_last_may_weigh_most(impl):
    """The residual buffer's keys are loud, so that what codes have added becomes little beside."""
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(16, 150, 64, generator=generator) / 4
    keys, values = torch.randn(2, 2, 150, 64, generator=generator) + 1
    keys[:, -9:] *= 5
    config = reference.HexConfig(bits=4, density=0.0, heavy=0.0, recent=0, block=96)
    cache = reference.hex_prefill(queries[:, :-1], keys[:, :-1], values[:, :-1], config=config)
    x = dict(queries=queries[:, -1:].clone(), cache=cache)
    assert_as_accurate(impl.hex_attention(**x).output, read, x | dict(causal=True, scale=None))


@pytest.mark.spec("HEX-3.1a", "HEX-5a")
@pytest.mark.parametrize("part", ["keys", "values", "few"])
@pytest.mark.parametrize("density", [0.0, 0.125])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_numbers_far_above_one_are_read(impl, part, density, dtype):
    """No float is a sum over the tokens, or over the channels; `few` tokens are beyond the rest."""
    generator = torch.Generator().manual_seed(0)
    stream = torch.randn(3, 2, 330, 64, generator=generator)
    if part == "few":
        stream[0] = (stream[0] / 4 + 1) * 2.0**-122
        stream[1, :, 50:250:40] += 2
        stream[1:, :, 50:250:40] *= 2.0**121
    elif part == "keys":
        stream[0] = (stream[0] / 4 + 1) * 2.0**-126
        stream[1] = (stream[1] / 8 + 1) * 2.0**123
        stream[2] += 4
    else:
        stream[2] = (stream[2] / 4 + 1) * 2.0**124
    config = reference.HexConfig(bits=4, density=density, heavy=density / 4, recent=0, block=96)
    cache = reference.hex_prefill(*stream.to(dtype), config=config)
    x = dict(queries=stream[0][:, -1:].to(dtype), cache=cache)
    with np.errstate(over="ignore"):  # a kernel is judged by what it hands out
        attended = impl.hex_attention(**x, mass=True)
    assert_as_accurate(attended.output, read, x | dict(causal=True, scale=None))
    assert_as_accurate(attended.mass, restored_mass, x | dict(causal=True, scale=None))


@pytest.mark.spec("HEX-3.1a")
@pytest.mark.parametrize("scale", [None, 1.0])
@pytest.mark.parametrize("density", [0.0, 0.125])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_queries_near_the_largest_float_are_read(impl, scale, density, dtype):
    """What a query is multiplied by, without its keys, is no float."""
    generator = torch.Generator().manual_seed(0)
    stream = torch.randn(3, 2, 130, 64, generator=generator)
    asked = stream[0][:, -1:]
    asked = asked / asked.abs().max() * 2.0**124
    stream[0], stream[1] = 0, (stream[1] + 1) * 2.0**-120
    config = reference.HexConfig(bits=4, density=density, heavy=density / 4, recent=0, block=96)
    cache = optimized.hex_prefill(*stream[..., :-1, :].to(dtype), config=config)
    x = dict(queries=asked.to(dtype), cache=cache, scale=scale)
    attended = impl.hex_attention(**x, mass=True)
    assert_as_accurate(attended.output, read, x | dict(causal=True))
    assert_as_accurate(attended.mass, restored_mass, x | dict(causal=True))


@pytest.mark.spec("HEX-3.1a")
@pytest.mark.parametrize("density", [0.0, 0.125])
@pytest.mark.parametrize("power", [40, 100])
@pytest.mark.parametrize("size", [1.0, 2.0**40])
def test_channels_may_be_far_apart_and_queries_near_the_small_ones(impl, size, power, density):
    """Products are as large as one another, but those of some queries are beyond the others'."""
    generator = torch.Generator().manual_seed(power)
    queries, keys, values = torch.randn(3, 8, 130, 64, generator=generator)
    apart = 2.0 ** (torch.rand(64, generator=generator) * power - power / 2).round()
    queries, keys, values = queries / apart, keys[:2] * apart, values[:2]
    queries[::2] *= size
    config = reference.HexConfig(bits=4, density=density, heavy=density / 4, recent=0, block=96)
    cache = optimized.hex_prefill(queries[:, :-1], keys[:, :-1], values[:, :-1], config=config)
    x = dict(queries=queries[:, -1:].clone(), cache=cache)
    attended = impl.hex_attention(**x, mass=True)
    assert_as_accurate(attended.output, read, x | dict(causal=True, scale=None))
    assert_as_accurate(attended.mass, restored_mass, x | dict(causal=True, scale=None))


@pytest.mark.spec("HEX-3.1a", "HEX-5a")
@pytest.mark.parametrize("size", [1.0, 2.0**20])
def test_what_is_kept_whole_beside_huge_keys_is_read_as_it_lies(impl, size):
    """All that is not kept has no weight, however large its logits are."""
    generator = torch.Generator().manual_seed(0)
    queries, keys, values = torch.randn(3, 2, 97, 64, generator=generator)
    queries = queries.abs()
    keys[:, 3:] = -keys[:, 3:].abs() * size
    config = reference.HexConfig(bits=8, density=0.0, heavy=0.04, recent=0, block=96)
    cache = reference.hex_prefill(queries[:, :-1], keys[:, :-1], values[:, :-1], config=config)
    x = dict(queries=queries[:, -1:].clone(), cache=cache)
    attended = impl.hex_attention(**x, mass=True)
    assert_as_accurate(attended.output, read, x | dict(causal=True, scale=None))
    assert_as_accurate(attended.mass, restored_mass, x | dict(causal=True, scale=None))


@pytest.mark.spec("HEX-3.1a")
@pytest.mark.parametrize("size", [2.0**16, 2.0**60])
@pytest.mark.parametrize("density", [0.0, 0.125])
def test_where_logits_are_huge_a_query_reads_the_token_it_is_nearest_to(impl, size, density):
    """Of two logits the difference is beyond all powers, and nothing can be added to one."""
    generator = torch.Generator().manual_seed(0)
    stream = torch.randn(3, 2, 130, 64, generator=generator)
    stream[:2] *= size
    config = reference.HexConfig(bits=4, density=density, heavy=density / 4, recent=0, block=96)
    cache = optimized.hex_prefill(*(x[:, :-1] for x in stream), config=config)
    x = dict(queries=stream[0][:, -1:].clone(), cache=cache)
    attended = impl.hex_attention(**x, mass=True)
    assert_as_accurate(attended.output, read, x | dict(causal=True, scale=None))
    assert_equal(attended.mass.count_nonzero(), torch.tensor(2))


@pytest.mark.spec("HEX-3.1a")
def test_blocks_of_no_weight_add_nothing_however_large_their_values_are(impl):
    generator = torch.Generator().manual_seed(0)
    stream = torch.randn(3, 16, 330, 64, generator=generator)
    queries, (keys, values) = stream[0], stream[1:, :2]
    keys[:, 96:192] *= 300
    values[:, :96] = torch.finfo(torch.float32).max
    config = reference.HexConfig(bits=4, density=0.0, heavy=0.0, recent=0, block=96)
    cache = optimized.hex_prefill(queries[:, :-1], keys[:, :-1], values[:, :-1], config=config)
    x = dict(queries=queries[:, -1:].clone(), cache=cache)
    assert_as_accurate(impl.hex_attention(**x).output, read, x | dict(causal=True, scale=None))


@pytest.mark.spec("HEX-3.1a")
def test_the_mean_of_the_largest_value_is_none_beyond_it(impl):
    none, largest = torch.zeros(1, 512, 64), torch.finfo(torch.float32).max
    config = reference.HexConfig(bits=4, density=0.0, heavy=0.0, recent=0, block=32)
    cache = optimized.hex_prefill(none, none, none + largest, config=config)
    mean = impl.hex_attention(none[:, :1], cache).output
    assert_close(mean, largest)


@pytest.mark.spec("HEX-3.1a")
def test_logits_beyond_a_float_read_no_number(impl):
    generator = torch.Generator().manual_seed(0)
    stream = torch.randn(3, 1, 97, 64, generator=generator) * 2.0**64
    config = reference.HexConfig(bits=4, density=0.0, heavy=0.0, recent=0, block=32)
    queries, *span = (x[:, :-1] for x in stream)
    cache = reference.hex_prefill(queries * 2.0**-64, *span, config=config)
    assert impl.hex_attention(stream[0][:, -1:].clone(), cache).output.isnan().all()


@pytest.mark.spec("HEX-3.3a", "HEX-5a")
@given(unpadded)
def test_each_query_hands_out_one_unit_of_attention_a_head(impl, x):
    mass = impl.hex_attention(**x | dict(mass=True)).mass
    heads, count = x["queries"].shape[-3:-1]
    whole = heads * count if mass.shape[-1] else 0
    assert (mass >= 0).all()
    assert_close(mass.sum(-1), float(whole), max(1, whole))


@pytest.mark.spec("HEX-3.1a", "HEX-5a")
@given(asked(padded=st.just(True)))
def test_padding_draws_nothing_and_a_query_at_padding_reads_nothing(impl, x):
    attended = impl.hex_attention(**x | dict(mass=True))
    assert_equal(attended.mass[~x["valid"]], torch.zeros_like(attended.mass[~x["valid"]]))
    count, tokens = x["queries"].shape[-2], x["valid"].shape[-1]
    real = x["valid"].sum(-1)[..., None, None]
    left = torch.arange(count)[:, None] + tokens - count if x["causal"] else tokens - 1
    blind = (left < tokens - real).expand(*attended.output.shape[:-3], count, 1)[..., None, :, :]
    nothing = attended.output.masked_fill(~blind, 0)
    assert_equal(nothing, torch.zeros_like(nothing))


@pytest.mark.spec("HEX-3.1a", "HEX-5a")
@given(asked(padded=st.just(True)))
def test_a_padded_row_reads_what_it_would_without_its_padding(impl, x):
    output = impl.hex_attention(**x).output
    for row in np.ndindex(*output.shape[:-3]):
        first = int((~x["valid"][row]).sum())
        late = max(0, output.shape[-2] - x["valid"].shape[-1] + first) if x["causal"] else 0
        asking = {name: x[name] for name in ("cache", "causal", "scale")}
        asking |= dict(queries=x["queries"][row][:, late:], row=row, first=first)
        assert_as_accurate(output[row][:, late:], read, asking)


@pytest.mark.spec("HEX-3.1a", "HEX-5a")
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_codes_of_a_half_precision_cache_are_multiplied_in_single(impl, half):
    generator = torch.Generator().manual_seed(0)
    queries, keys, values = torch.randn(3, 2, 2 * BLOCK, 4, generator=generator).to(half)
    config = reference.HexConfig(bits=8, block=BLOCK, density=0.5, recent=2)
    cache = impl.hex_prefill(queries, keys, values, config)
    wide = cache._replace(
        residual_keys=cache.residual_keys.float(), residual_values=cache.residual_values.float()
    )
    asked = queries[:, -1:]
    attended = impl.hex_attention(asked, cache, mass=True)
    assert attended.output.dtype == half
    assert attended.mass.dtype == torch.float32
    assert impl.hex_attention(asked.float(), wide).output.dtype == torch.float32
    assert impl.hex_attention(asked.double(), cache, mass=True).mass.dtype == torch.float64


@pytest.mark.spec("HEX-3.1a", "HEX-5a")
@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("tokens", [11, 22, 96])
def test_codes_of_every_width_are_read_whole_beside_a_huge_channel_and_a_tiny_one(
    impl, bits, tokens
):
    """Codes may end beyond a byte, and a stream within a period of them."""
    generator = torch.Generator().manual_seed(bits)
    queries, keys, values = torch.randn(3, 2, tokens, 4, generator=generator)
    apart = torch.tensor([1.0, 2.0**60, 2.0**-60, 1.0])
    config = reference.HexConfig(bits=bits, block=tokens, density=0.0, heavy=0.0, recent=0)
    cache = reference.hex_prefill(queries, keys * apart, values, config)
    asking = dict(queries=queries / apart, cache=cache)
    attended = impl.hex_attention(**asking, mass=True)
    assert_as_accurate(attended.output, read, asking)
    assert_as_accurate(attended.mass, restored_mass, asking | dict(causal=True, scale=None))


@pytest.mark.gradients
@pytest.mark.spec("HEX-3.1a", "HEX-5a")
@pytest.mark.parametrize(
    "part",
    ["key_steps", "key_minima", "value_steps", "value_minima", "kept_keys", "kept_values"],
)
def test_what_a_block_holds_has_the_gradients_of_the_reference(impl, part):
    """One part alone, in single precision, as of a prompt whose residual buffer is detached."""
    generator = torch.Generator().manual_seed(0)
    queries, keys, values = torch.randn(3, 2, 2 * BLOCK + 1, 4, generator=generator)
    config = reference.HexConfig(bits=4, block=BLOCK, density=0.25, recent=2, near=True)
    cache = reference.hex_prefill(queries, keys, values, config)
    held, asked = cache.blocks[0], queries[:, -1:].clone()

    def taught(function: Any) -> torch.Tensor:
        leaf = getattr(held, part).clone().requires_grad_()
        learned = cache._replace(blocks=(held._replace(**{part: leaf}), *cache.blocks[1:]))
        function(asked, learned).output.square().sum().backward()
        assert leaf.grad is not None
        return leaf.grad

    expected = taught(reference.hex_attention)
    scale = float(expected.abs().max())
    assert scale
    assert_close(taught(impl.hex_attention), expected.double(), 16 * scale)


@pytest.mark.spec("HEX-3.1a", "HEX-5a")
@pytest.mark.parametrize("change", [dict(bits=3), dict(value_group="head")], ids=str)
def test_blocks_of_several_settings_are_read_together(impl, change):
    """A cache whose settings change holds blocks of the old ones and of the new."""
    generator = torch.Generator().manual_seed(0)
    queries, *streams = torch.randn(3, 2, 4 * BLOCK, 4, generator=generator)
    parts = [[x[:, i * BLOCK :][:, :BLOCK] for x in (queries, *streams)] for i in range(4)]
    config = reference.HexConfig(bits=4, block=BLOCK, density=0.0, recent=2)
    cache = impl.hex_prefill(*parts[0], config=config)
    cache = cache._replace(config=config._replace(**change))
    for part in parts[1:]:
        cache = impl.hex_append(cache, *part)
    assert len({block.bits for block in cache.blocks}) == 1 + ("bits" in change)
    asking = dict(queries=queries[:, -1:].clone(), cache=cache)
    attended = impl.hex_attention(**asking, mass=True)
    assert_as_accurate(attended.output, read, asking)
    assert_as_accurate(attended.mass, restored_mass, asking | dict(causal=True, scale=None))
    decoded = impl.hex_decode(cache, *(x[:, :1] for x in parts[0]))
    assert decoded.cache.residual_mass.isfinite().all()


@pytest.mark.spec("HEX-3.1a", "HEX-5a")
def test_no_query_heads_read_nothing(impl):
    keys = torch.randn(2, BLOCK + 3, 4, generator=torch.Generator().manual_seed(0))
    config = reference.HexConfig(block=BLOCK, density=0.25, recent=2, near=True)
    cache = impl.hex_prefill(keys[:0], keys, keys, config)
    attended = impl.hex_attention(keys[:0, :1].clone(), cache, mass=True)
    assert_equal(attended.output, keys[:0, :1].clone())
    assert_equal(attended.mass, torch.zeros(BLOCK + 3))
    new = keys[:, :1].clone()
    assert_equal(impl.hex_decode(cache, new[:0], new, new).output, new[:0])


def quarter(tokens: int) -> tuple[torch.Tensor, reference.HexCache]:
    """Return a question, and a cache of which a mask of a quarter of the entries is kept."""
    queries, keys, values = torch.randn(3, 2, tokens, 6, generator=torch.Generator().manual_seed(1))
    config = reference.HexConfig(bits=4, block=12, density=0.25, recent=2)
    return queries[:, -1:], optimized.hex_prefill(queries, keys, values, config)


def test_the_twin_restores_no_key_and_no_value(monkeypatch):
    queries, cache = quarter(24)
    expected = reference.hex_attention(queries, cache).output
    for module, name in ((attention, "hex_reconstruct"), (packing, "unpack_bits")):
        monkeypatch.delattr(module, name)
    assert_close(optimized.hex_attention(queries, cache).output, expected.double(), 4.0)


@pytest.mark.parametrize("part", ["queries", "keys", "values"])
@pytest.mark.parametrize("power", [-70, -40, 0, 40, 70])
def test_the_twin_restores_what_is_far_from_one(monkeypatch, part, power):
    noise = torch.randn(3, 2, 24, 6, generator=torch.Generator().manual_seed(0))
    stream = dict(zip(("queries", "keys", "values"), noise, strict=True))
    stream[part] = stream[part] * 2.0**power
    config = reference.HexConfig(bits=4, block=12, density=0.25, recent=2)
    cache = optimized.hex_prefill(**stream, config=config)
    monkeypatch.delattr(attention, "hex_reconstruct")
    far = power == 70 or (power == -70 and part == "values")
    far |= power == 40 and part != "values"  # what is kept is beside logits that are huge
    with pytest.raises(NameError) if far else nullcontext():
        optimized.hex_attention(stream["queries"][:, -1:].clone(), cache)


def test_a_step_makes_no_mask_anew_however_many_lengths_take_turns(monkeypatch):
    asked = [quarter(12 * blocks) for blocks in range(1, 67)]
    held = []
    for queries, cache in asked:
        optimized.hex_attention(queries, cache)
        held.append(decoded(cache, queries, *(queries[:2],) * 2)[1])
    for module in (attention, laid):
        monkeypatch.delattr(module, "static_mask")
    for (queries, cache), one in zip(asked, held, strict=True):
        optimized.hex_attention(queries, cache)
        assert isinstance(one, Laid)
        decoded(one, queries, *(queries[:2],) * 2)
