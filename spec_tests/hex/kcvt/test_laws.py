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
def groups(draw):
    """Groups of Gaussian or grid numbers, some with a large offset, some of them kept."""
    shape = (*draw(st.sampled_from([(4,), (2, 3)])), draw(st.integers(0, 12)))
    x = draw(gaussian_tensor(*shape) if draw(st.booleans()) else grid(*shape, low=-16))
    return dict(
        x=x * draw(st.sampled_from([1.0, 100.0])) + draw(st.sampled_from([0.0, 50.0])),
        bits=draw(widths),
        kept=draw(booleans(*shape)),
    )


@pytest.mark.spec("HEX-3.4a")
@given(groups())
def test_the_error_is_at_most_half_a_step(impl, x):
    exact = x | dict(x=x["x"].double())
    q = impl.quantise(**exact)
    error = (impl.dequantise(*q) - exact["x"]).abs().masked_fill(x["kept"], 0)
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
    rows = impl.dequantise(*impl.quantise(**x)), x["x"].double(), x["kept"]
    for out, exact, kept in zip(*(y.flatten(0, -2) for y in rows), strict=True):
        if not kept.all():
            low, high = exact[~kept].aminmax()
            assert_equal(out[~kept].min().double(), low)
            assert_close(out[~kept].max(), high, low.abs())


@pytest.mark.spec("HEX-3.4a")
def test_a_step_of_the_whole_range_would_leave_two_levels(impl):
    x = torch.linspace(0, 1, 100, dtype=torch.float64)
    low, span = x.min(), x.max() - x.min()
    assert (((x - low) / span).round() * span + low).unique().numel() == 2
    assert impl.dequantise(*impl.quantise(x, 3)).unique().numel() == 8


@pytest.mark.spec("HEX-3.4a")
@given(groups(), st.sampled_from([-1000.0, 0.0, 1000.0]))
def test_kept_entries_do_not_enter_the_statistics(impl, x, value):
    replaced = x | dict(x=x["x"].masked_fill(x["kept"], value))
    assert_equal(impl.quantise(**x), impl.quantise(**replaced))
    assert (impl.quantise(**x).codes[x["kept"]] == 0).all()


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
    assert_equal(keys, x["keys"].where(~rest, impl.dequantise(*q).mT))
    assert_equal(values[~rest], x["values"][~rest])
    kv_heads = keys.shape[-3]
    heads = [slice(h, h + 1) for h in range(kv_heads)]
    for group in [slice(kv_heads)] if x["value_group"] == "token" else heads:
        raw, remain, out = (rows(y, group) for y in (x["values"], rest, values))
        q = impl.quantise(raw, x["bits"], None if kept is None else ~remain, x["scales"])
        assert_equal(out[remain], impl.dequantise(*q)[remain])


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
