"""The retained-token chain diagnostic: HubKV Appendix D, Table 4."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.inputs import INPUTS

pytestmark = pytest.mark.spec("HubKV-D")

# Table 4's last column, and the number of its 415 tokens that gives it
CHANGED = {"82.2%": 341, "90.4%": 375, "91.8%": 381, "89.6%": 372, "60.7%": 252, "26.3%": 109}


@pytest.mark.parametrize("printed", CHANGED)
def test_the_changed_share_counts_tokens(impl, printed):
    """With 36 layers of 8 heads, each of these tokens lost one of its 288 places."""
    base, span = torch.ones(36, 8, 500, dtype=torch.bool), torch.arange(500) >= 85
    refined = base.clone()
    lost = torch.arange(85, 85 + CHANGED[printed])
    refined[lost % 36, lost % 8, lost] = False
    diagnostic = impl.retained_chains(base, refined, span)
    assert f"{diagnostic.changed:.1%}" == printed
    assert_close(diagnostic.change, -CHANGED[printed] / (288 * 415))


@given(INPUTS["retained_chains"])
def test_means_run_over_the_span_alone(impl, x):
    base, refined, span = x["base"], x["refined"], x["span"]
    diagnostic = impl.retained_chains(**x)
    assert_close(diagnostic.base, base[..., span].double().mean())
    assert_close(diagnostic.refined, refined[..., span].double().mean())
    assert_close(diagnostic.change, float(diagnostic.refined) - float(diagnostic.base))
    elsewhere = impl.retained_chains(base ^ ~span, refined | ~span, span)
    assert_equal(tuple(elsewhere), tuple(diagnostic))


@given(INPUTS["retained_chains"], st.integers(0, 3))
def test_a_token_that_moves_to_another_head_is_unchanged(impl, x, shift):
    heads = x["base"].shape[:-1].numel()
    rows = x["base"].reshape(heads, -1)
    moved = impl.retained_chains(rows, rows.roll(shift, 0), x["span"])
    assert moved.change == 0
    assert moved.changed == 0
