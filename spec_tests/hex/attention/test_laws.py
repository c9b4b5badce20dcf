"""Attention over a HEX cache: HEX §3.1 on what §4.1 stores, and §5."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import optimized
import reference
from optimized.vector.hex import attention, packing
from spec_tests.accuracy import assert_as_accurate, assert_close, assert_equal
from spec_tests.hex.attention.draws import asked
from spec_tests.hex.cache.draws import BLOCK, configs, streams
from spec_tests.hex.cache.streams import assert_same_cache, pieces
from spec_tests.inputs import INPUTS
from spec_tests.kernels.wide import coded, wide

unpadded = asked(padded=st.just(False))


def read(queries, cache, causal=True, scale=None, keys=None, values=None, row=(), first=0):
    """Attend to what the specification restores of a cache, or a row from a token on."""
    old = reference.hex_read(cache)
    new = [x[..., :0, :] for x in old] if keys is None else [keys, values]
    found = (torch.cat([x, y], -2)[row][..., first:, :] for x, y in zip(old, new, strict=True))
    return reference.attention(queries, next(found), next(found), causal, scale)


def drawn(queries, cache, causal, scale):
    """Add up the weights on what the specification restores of a cache."""
    keys, _ = reference.hex_read(cache)
    return reference.attention_weights(queries, keys, causal, scale).sum((-3, -2))


# so that the rounding of their sums is judged as of those
read.__name__, drawn.__name__ = "attention", "attention_weights"


@pytest.mark.spec("HEX-3.1a", "HEX-5a")
@given(unpadded)
def test_attention_over_a_cache_is_attention_over_what_it_restores(impl, x):
    attended = impl.hex_attention(**x)
    asking = {name: x[name] for name in ("queries", "cache", "causal", "scale")}
    assert_as_accurate(attended.output, read, asking)
    assert (attended.mass is not None) == x["mass"]
    if x["mass"]:
        assert_as_accurate(attended.mass, drawn, asking)


@pytest.mark.spec("HEX-3.1a", "HEX-5a")
@settings(max_examples=8)
@given(wide(bits=(4,)).filter(coded))
def test_heads_of_a_models_width_read_what_is_restored(impl, x):
    """A query of every head over up to three blocks: what kernels are made for."""
    attended = impl.hex_attention(**x, mass=True)
    asking = x | dict(causal=True, scale=None)
    assert_as_accurate(attended.output, read, asking)
    assert_as_accurate(attended.mass, drawn, asking)


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


def test_a_step_makes_no_mask_anew_however_many_lengths_take_turns(monkeypatch):
    asked = [quarter(12 * blocks) for blocks in range(1, 13)]
    for queries, cache in asked:
        optimized.hex_attention(queries, cache)
    monkeypatch.delattr(attention.streaming, "static_mask")
    for queries, cache in asked:
        optimized.hex_attention(queries, cache)
