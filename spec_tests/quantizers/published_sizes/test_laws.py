"""The sizes printed for KIVI and GEAR."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

PROMPTS = (900, 1304, 1021)


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
    # the formula counts a full buffer, and also the codes of its tokens
    for name in ("KIVI-4", "KIVI-2"):
        assert rows[name].paper - 64 * 100 / 900 < rows[name].ours < rows[name].paper
    # two bits of sixteen
    assert rows["KIVI-4"].ours - rows["KIVI-2"].ours < 100 / 8
    # the difference is the places of outliers, two bytes each
    places = sum(50 * impl.gear_size(n).outliers / (4 * 1024 * n) for n in PROMPTS) / 3
    assert rows["GEAR"].ours - places < rows["GEAR"].paper < rows["GEAR"].ours


@pytest.mark.spec("HEX-GEAR", "HEX-KIVI")
@given(st.integers(1, 40))
def test_ours_is_the_mean_over_prompts(impl, heads):
    one, two = (impl.quantizer_sizes((n,), heads) for n in (900, 1304))
    both = impl.quantizer_sizes((900, 1304), heads)
    for first, second, mean in zip(one, two, both, strict=True):
        assert mean.ours == pytest.approx((first.ours + second.ours) / 2)


@pytest.mark.spec("HEX-GEAR", "HEX-KIVI")
@given(st.integers(1, 40), st.sampled_from([64, 128]), st.integers(1, 2000))
def test_ours_is_what_the_layouts_weigh(impl, heads, width, tokens):
    gear, *kivi = (row.ours for row in impl.quantizer_sizes((tokens,), heads, width))
    whole = 4 * heads * width * tokens
    size = impl.gear_size(tokens, kv_heads=heads, width=width)
    assert gear == pytest.approx(100 * size.total / whole)
    for ours, bits in zip(kivi, (4, 2), strict=True):
        size = impl.kivi_size(tokens, bits, 64, 64, heads, width)
        assert ours == pytest.approx(100 * size.total / whole)
