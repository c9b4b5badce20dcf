"""KCVT quantisation: HEX §3.4."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_at_most, assert_close, assert_codes, assert_equal
from spec_tests.hex.kcvt.strategies import widths
from spec_tests.inputs import INPUTS
from spec_tests.strategies import booleans, gaussian_tensor, grid


@st.composite
def groups(draw, members=12, kept=True):
    """Groups of Gaussian or grid numbers, some with a large offset, some of them kept."""
    shape = (*draw(st.sampled_from([(4,), (2, 3)])), draw(st.integers(0, members)))
    x = draw(gaussian_tensor(*shape) if draw(st.booleans()) else grid(*shape, low=-16))
    masks = booleans(*shape) if kept else st.just(torch.zeros(shape, dtype=torch.bool))
    return dict(
        x=x * draw(st.sampled_from([1.0, 100.0])) + draw(st.sampled_from([0.0, 50.0])),
        bits=draw(widths),
        kept=draw(masks),
    )


def restored(impl, x, bits, kept=None, scales=None):
    """Return a quantised tensor, and its restored entries, those of kept entries too."""
    q = impl.quantise(x, bits, kept, scales)
    return q, impl.dequantise(*q)


def remaining(x, fill):
    """Return the input with kept entries replaced by `fill`."""
    return x["x"].double().masked_fill(x["kept"], fill)


def extremes(x):
    """Return which groups have remaining entries, and their minimum and maximum."""
    some = (~x["kept"]).any(-1)
    if x["x"].shape[-1] == 0:
        return some, x["x"].double().sum(-1), x["x"].double().sum(-1)
    return some, remaining(x, torch.inf).amin(-1), remaining(x, -torch.inf).amax(-1)


@pytest.mark.spec("HEX-3.4a")
@given(groups())
def test_the_error_is_at_most_half_a_step(impl, x):
    exact = x | dict(x=x["x"].double())
    q, out = restored(impl, **exact)
    error = (out - exact["x"]).abs().masked_fill(x["kept"], 0)
    scale = exact["x"].abs().amax() if exact["x"].numel() else 0
    assert_at_most(error + scale, (q.steps / 2)[..., None] + scale)


@pytest.mark.spec("HEX-3.4a")
@given(
    gaussian_tensor(4, 12), booleans(4, 12), widths, st.sampled_from([torch.float16, torch.float32])
)
def test_codes_are_the_nearest_to_the_stored_grid(impl, x, kept, bits, scales):
    # with an offset at which the minimum rounds by as much as a step
    x = x + 50
    q = impl.quantise(x, bits, kept, scales)
    step, low = q.steps.double()[..., None], q.minima.double()[..., None]
    coded = ~kept & (step > 0)
    unrounded = ((x.double() - low) / step).clamp(0, 2**bits - 1)
    scale = torch.maximum(x.double().abs(), low.abs()) / step
    assert_codes(q.codes[coded], unrounded[coded], scale[coded].float())


@pytest.mark.spec("HEX-3.4a")
@given(groups())
def test_the_minimum_is_exact_and_the_maximum_nearly(impl, x):
    _, out = restored(impl, **x)
    some, low, high = extremes(x)
    assert some.shape == out.shape[:-1]
    for group in some.nonzero():
        place = tuple(group.tolist())
        rest = out[place][~x["kept"][place]]
        assert_equal(rest.min().double(), low[place])
        assert_close(rest.max(), high[place], low[place].abs())


@pytest.mark.spec("HEX-3.4a")
def test_a_step_of_the_whole_range_would_leave_two_levels(impl):
    x = torch.linspace(0, 1, 100, dtype=torch.float64)
    low, span = x.min(), x.max() - x.min()
    assert (((x - low) / span).round() * span + low).unique().numel() == 2
    assert impl.dequantise(*impl.quantise(x, 3)).unique().numel() == 8


@pytest.mark.spec("HEX-3.4a")
@given(groups(kept=False))
def test_quantising_again_changes_no_code(impl, x):
    exact = x["x"].double()
    q, out = restored(impl, exact, x["bits"])
    again, twice = restored(impl, out, x["bits"])
    assert_equal(again.codes, q.codes)
    scale = exact.abs().amax() if exact.numel() else 0.0
    assert_close(twice, out, scale)


@pytest.mark.spec("HEX-3.4a")
@given(INPUTS["quantise"], st.integers(-3, 3), st.integers(-8, 8))
def test_powers_of_two_and_whole_shifts_pass_through(impl, x, power, shift):
    exact = x["x"].double()
    q, out = restored(impl, exact, x["bits"], x["kept"])
    moved, there = restored(impl, exact * 2.0**power + shift, x["bits"], x["kept"])
    assert_equal(moved.codes, q.codes)
    rest = torch.ones_like(exact).bool() if x["kept"] is None else ~x["kept"]
    assert_equal(there[rest], (out * 2.0**power + shift)[rest])


@pytest.mark.spec("HEX-3.4a")
@given(groups(), st.sampled_from([-1000.0, 0.0, 1000.0]))
def test_kept_entries_do_not_enter_the_statistics(impl, x, value):
    replaced = x | dict(x=x["x"].masked_fill(x["kept"], value))
    assert_equal(impl.quantise(**x), impl.quantise(**replaced))
    assert (impl.quantise(**x).codes[x["kept"]] == 0).all()


@pytest.mark.spec("HEX-3.4a")
@given(groups(members=1), st.integers(1, 5))
def test_constant_and_empty_groups_have_code_zero_and_no_step(impl, x, times):
    constant = x["x"].repeat_interleave(times, -1)
    kept = x["kept"].repeat_interleave(times, -1)
    q, out = restored(impl, constant, x["bits"], kept)
    assert (q.codes == 0).all()
    assert (q.steps == 0).all()
    assert_equal(out[~kept], constant[~kept])
    assert torch.isfinite(out).all()


@pytest.mark.spec("HEX-3.4b")
@given(INPUTS["kcvt"])
def test_kept_entries_come_back_bit_for_bit(impl, x):
    kept = torch.zeros_like(x["keys"]).bool() if x["kept"] is None else x["kept"]
    keys, values = impl.kcvt(**x)
    assert_equal(keys[kept], x["keys"][kept])
    assert_equal(values[kept], x["values"][kept])


def rows(x, heads):
    """Return a row of the given heads' channels for each token."""
    return x[..., heads, :, :].transpose(-3, -2).flatten(-2)


@pytest.mark.spec("HEX-3.4b")
@given(INPUTS["kcvt"])
def test_keys_are_quantised_by_channel_and_values_by_token(impl, x):
    keys, values = impl.kcvt(**x)
    kept = x["kept"]
    q = impl.quantise(x["keys"].mT, x["bits"], None if kept is None else kept.mT, x["scales"])
    rest = torch.ones_like(keys).bool() if kept is None else ~kept
    assert_equal(keys[rest], impl.dequantise(*q).mT[rest])
    kv_heads = keys.shape[-3]
    heads = [slice(h, h + 1) for h in range(kv_heads)]
    for group in [slice(kv_heads)] if x["value_group"] == "token" else heads:
        raw, remain, out = (rows(y, group) for y in (x["values"], rest, values))
        q = impl.quantise(raw, x["bits"], None if kept is None else ~remain, x["scales"])
        assert_equal(out[remain], impl.dequantise(*q)[remain])


@st.composite
def several_heads(draw):
    """Two heads of at least two tokens, of which the first is not kept."""
    shape = (2, draw(st.integers(2, 4)), draw(st.integers(1, 3)))
    kept = draw(booleans(*shape))
    kept[0] = False
    return dict(values=draw(gaussian_tensor(*shape)), bits=draw(widths), kept=kept)


@pytest.mark.spec("HEX-3.4b")
@given(several_heads())
def test_the_heads_of_a_token_are_quantised_as_one_head_that_is_as_wide(impl, x):
    def side_by_side(heads):
        return torch.cat([*heads], -1)[None]

    _, values = impl.kcvt(keys=x["values"], **x)
    wide = {k: side_by_side(v) if k != "bits" else v for k, v in x.items()}
    _, joined = impl.kcvt(keys=wide["values"], **wide)
    assert_equal(side_by_side(values), joined)


@pytest.mark.spec("HEX-3.4b")
@given(gaussian_tensor(2, 12, 4), st.integers(1, 4), st.sampled_from(["token", "head"]))
def test_codes_are_used_where_they_are_supposed_to_be(impl, x, bits, group):
    keys, values = impl.kcvt(x, x, bits, value_group=group)
    assert ((keys - x).abs().amax(-2) > 0).all()
    if group == "token" or bits == 1:
        assert ((values - x).abs().amax((-3, -1)) > 0).all()


@pytest.mark.spec("HEX-3.4b")
@given(gaussian_tensor(2, 1, 4), widths)
def test_one_token_of_keys_is_exact(impl, x, bits):
    assert_equal(impl.kcvt(x, x, bits)[0], x)


@pytest.mark.spec("HEX-3.4a")
@pytest.mark.parametrize("scales", [None, torch.float16, torch.float32])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_scales_are_stored_in_the_type_asked_for(impl, dtype, scales):
    q = impl.quantise(torch.arange(4, dtype=dtype), 2, None, scales)
    own = dtype if dtype in (torch.float16, torch.float64) else torch.float32
    assert q.steps.dtype == q.minima.dtype == (scales or own)


@pytest.mark.spec("HEX-3.4a")
@given(st.integers(1, 7))
def test_a_code_never_exceeds_the_grid(impl, bits):
    """From 2048 on float16 holds even numbers only: the stored minimum is one step too low."""
    levels = 2**bits
    q = impl.quantise(2049 + torch.arange(float(levels)), bits, None, torch.float16)
    assert (q.minima.item(), q.steps.item()) == (2048.0, 1.0)
    assert q.codes.tolist() == [*range(1, levels), levels - 1]


@pytest.mark.spec("HEX-3.4a")
@given(groups())
def test_rounded_scales_add_their_own_error(impl, x):
    q, out = restored(impl, **x, scales=torch.float16)
    some, low, high = extremes(x)
    top = 2 ** x["bits"] - 1
    step = torch.where(some, (high - low) / top, 0.0)
    bound = step / 2 + torch.where(some, (low - q.minima.double()).abs(), 0.0)
    bound = bound + top * (step - q.steps.double()).abs()
    error = (out.double() - x["x"].double()).abs().masked_fill(x["kept"], 0)
    # the bound holds in exact arithmetic; the addition of `scale` compares at float32's rounding
    scale = x["x"].abs().amax() if x["x"].numel() else torch.tensor(0.0)
    assert_at_most((error + scale).float(), (bound[..., None] + scale).float())


@pytest.mark.spec("HEX-3.4a")
@given(groups())
def test_a_group_has_at_most_two_to_the_bits_values(impl, x):
    _, out = restored(impl, **x)
    for row, kept in zip(out.flatten(0, -2), x["kept"].flatten(0, -2), strict=True):
        assert row[~kept].unique().numel() <= 2 ** x["bits"]


@pytest.mark.spec("HEX-3.4a")
@given(st.integers(1, 8))
def test_a_group_that_fills_the_grid_uses_every_code(impl, bits):
    ramp = torch.arange(2**bits, dtype=torch.float64)
    q = impl.quantise(ramp, bits)
    assert q.codes.tolist() == list(range(2**bits))
    assert_equal(impl.dequantise(*q), ramp)


@pytest.mark.spec("HEX-3.4a")
@given(groups(), st.data())
def test_keeping_more_never_raises_a_step(impl, x, data):
    more = x["kept"] | data.draw(booleans(*x["kept"].shape))
    before, after = impl.quantise(**x), impl.quantise(**x | dict(kept=more))
    assert (after.steps <= before.steps).all()
