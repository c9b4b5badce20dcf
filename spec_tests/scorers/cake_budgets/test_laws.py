"""CAKE's budgets and their cascade."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.inputs import INPUTS
from spec_tests.scorers.cake_budgets import oracle

pytestmark = pytest.mark.spec("GraphKV-CAKE")

budgeted = INPUTS["cake_budgets"]


@st.composite
def counted(draw):
    """Integer preferences, some far above the others; a budget, a length and a window."""
    wishes = draw(st.lists(st.sampled_from([1, 2, 0, 3, 8, 9, 40]), min_size=1, max_size=6))
    window, beyond = draw(st.integers(0, 2)), draw(st.integers(0, 12))
    tokens = draw(st.integers(0, 16) | st.integers(0, 4).map(lambda n: beyond + 2 * window + n))
    return wishes, window + beyond, tokens, window


@pytest.mark.parametrize("exact", [False, True])
@given(counted())
def test_budgets_of_whole_preferences_agree_with_counting(impl, exact, x):
    wishes, keep, tokens, window = x
    budgets = impl.cake_budgets(torch.tensor(wishes).float(), keep, tokens, window, exact)
    assert budgets.tolist() == oracle.budgets(wishes, keep, tokens, window, exact)


@given(budgeted)
def test_budgets_hold_the_window_and_no_more_than_there_is(impl, x):
    budgets = impl.cake_budgets(**x)
    lengths = torch.as_tensor(x["tokens"]).expand(x["preferences"].shape[1:])
    assert (budgets >= lengths.clamp(max=x["window"])).all()
    assert (budgets <= lengths).all()


@pytest.mark.parametrize("exact", [False, True])
@given(counted())
def test_the_cascade_of_whole_preferences_agrees_with_counting(impl, exact, x):
    wishes, keep, tokens, window = x
    cascade = impl.cake_cascade(torch.tensor(wishes).float(), keep, tokens, window, exact)
    assert cascade.tolist() == oracle.cascade(wishes, keep, tokens, window, exact)
