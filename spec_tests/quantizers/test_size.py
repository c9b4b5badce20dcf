"""What KIVI and GEAR weigh, and the sizes printed for them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reference
from spec_tests.inputs import INPUTS
from spec_tests.inputs.quantizers import gear_caches, kivi_caches

PROMPTS = (900, 1304, 1021)


@pytest.mark.spec("HEX-KIVI", "HEX-GEAR", "HEX-4.2a")
@given(kivi_caches() | gear_caches())
def test_the_parts_are_every_byte_stored(impl, cache):
    assert impl.quantizer_bytes(cache).total == reference.stored_bytes(cache)


@pytest.mark.spec("HEX-GEAR")
@given(gear_caches())
def test_the_parts_are_what_they_are_called(impl, cache):
    size, blocks = impl.quantizer_bytes(cache), (*cache.key_blocks, *cache.value_blocks)
    assert size.codes == sum(reference.stored_bytes(block.words) for block in blocks)
    assert size.outliers == sum(6 * block.outliers.numel() for block in blocks)
    assert size.factors == sum(4 * (b.left.numel() + b.right.numel()) for b in blocks)
    assert size.residual == 8 * cache.residual_keys.numel()


@pytest.mark.spec("HEX-KIVI")
@given(INPUTS["kivi_size"])
def test_a_prompt_weighs_in_kivis_cache_what_was_said_beforehand(impl, x):
    said, dtype = impl.kivi_size(**x), x.pop("dtype")
    zeros = torch.zeros(x.pop("kv_heads"), x.pop("tokens"), x.pop("width"), dtype=dtype)
    assert impl.quantizer_bytes(impl.kivi_prefill(zeros, zeros, **x)) == said


@pytest.mark.spec("HEX-GEAR")
@given(INPUTS["gear_size"])
def test_a_prompt_weighs_in_gears_cache_what_was_said_beforehand(impl, x):
    said, dtype = impl.gear_size(**x), x.pop("dtype")
    zeros = torch.zeros(x.pop("kv_heads"), x.pop("tokens"), x.pop("width"), dtype=dtype)
    assert impl.quantizer_bytes(impl.gear_prefill(zeros, zeros, **x)) == said


@pytest.mark.spec("HEX-KIVI")
@given(st.integers(1, 8), st.sampled_from([32, 64]), st.integers(0, 500))
def test_a_coded_token_weighs_its_bits_and_two_scales_a_group(impl, bits, group, tokens):
    size = impl.kivi_size(tokens, bits, group, 128)
    coded = 1024 * (tokens // 128 * 128 + max(0, tokens - 128))
    assert size.codes + size.scales == 2 * coded * (bits / 16 + 2 / group)
    assert size.residual == 2 * (2 * 1024 * tokens - coded)


@pytest.mark.spec("HEX-KIVI")
@pytest.mark.parametrize(("bits", "printed"), [(4, 34.20), (2, 21.70)])
def test_the_sizes_printed_for_kivi_are_a_formula_of_three_prompts(impl, bits, printed):
    shares = [impl.kivi_share(bits, 64, 64, tokens) for tokens in PROMPTS]
    assert round(sum(shares) / 3, 1) == printed


@pytest.mark.spec("HEX-KIVI", "HEX-GEAR")
def test_printed_sizes_are_beside_ours(impl):
    rows = {row.method: row for row in impl.quantizer_sizes()}
    assert {name: row.paper for name, row in rows.items()} == {
        "GEAR": 31.00,
        "KIVI-4": 34.20,
        "KIVI-2": 21.70,
    }
    # the formula counts a full buffer, and codes for what is in it
    for name in ("KIVI-4", "KIVI-2"):
        assert rows[name].paper - 64 * 100 / 900 < rows[name].ours < rows[name].paper
    # two bits in sixteen
    assert rows["KIVI-4"].ours - rows["KIVI-2"].ours < 100 / 8
    # the places of outliers, two bytes each, make the difference
    places = sum(50 * impl.gear_size(n).outliers / (4 * 1024 * n) for n in PROMPTS) / 3
    assert rows["GEAR"].ours - places < rows["GEAR"].paper < rows["GEAR"].ours


@pytest.mark.spec("HEX-GEAR", "HEX-KIVI")
@given(st.integers(1, 40))
def test_ours_is_the_mean_over_prompts(impl, heads):
    one, two = (impl.quantizer_sizes((n,), heads) for n in (900, 1304))
    both = impl.quantizer_sizes((900, 1304), heads)
    for first, second, mean in zip(one, two, both, strict=True):
        assert mean.ours == pytest.approx((first.ours + second.ours) / 2)
