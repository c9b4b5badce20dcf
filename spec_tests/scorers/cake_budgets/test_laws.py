"""CAKE's budgets and their cascade."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_equal
from spec_tests.inputs import INPUTS
from spec_tests.scorers.cake_budgets import oracle

pytestmark = pytest.mark.spec("GraphKV-CAKE")

budgeted = INPUTS["cake_budgets"]


def lengths(x):
    """Return the number of tokens of each row."""
    return torch.as_tensor(x["tokens"]).expand(x["preferences"].shape[1:])


def whole(x):
    """Return the total budget of all layers without their windows."""
    return torch.tensor((x["keep"] - x["window"]) * len(x["preferences"]))


def room(x):
    """Return the number of tokens of each row outside the window."""
    return (lengths(x) - x["window"]).clamp(min=0)


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
def test_exact_budgets_add_up_to_all_there_is(impl, x):
    budgets = impl.cake_budgets(**x | dict(exact=True))
    layers = len(x["preferences"])
    beside = budgets - lengths(x).clamp(max=x["window"])
    assert_equal(beside.sum(0), torch.minimum(whole(x), room(x) * layers))


@given(budgeted, st.booleans())
def test_a_prompt_of_a_window_more_than_the_budget_is_kept_whole(impl, x, just):
    x = x | dict(tokens=x["keep"] + x["window"]) if just else x
    budgets = impl.cake_budgets(**x | dict(exact=False))
    layers, every = len(x["preferences"]), lengths(x)
    kept = every <= x["keep"] + x["window"]
    assert_equal(budgets[:, kept].clone(), every[kept].expand(layers, -1).clone())
    assert (budgets.sum(0) <= layers * x["keep"])[~kept].all()


@given(budgeted)
def test_budgets_hold_the_window_and_no_more_than_there_is(impl, x):
    budgets = impl.cake_budgets(**x)
    assert (budgets >= lengths(x).clamp(max=x["window"])).all()
    assert (budgets <= lengths(x)).all()


@pytest.mark.parametrize("exact", [False, True])
@given(counted())
def test_the_cascade_of_whole_preferences_agrees_with_counting(impl, exact, x):
    wishes, keep, tokens, window = x
    cascade = impl.cake_cascade(torch.tensor(wishes).float(), keep, tokens, window, exact)
    assert cascade.tolist() == oracle.cascade(wishes, keep, tokens, window, exact)


@given(budgeted)
def test_every_step_of_an_exact_cascade_shares_the_whole_budget(impl, x):
    cascade = impl.cake_cascade(**x | dict(exact=True))
    for step, budgets in enumerate(cascade):
        assert not budgets[step + 1 :].any()
        beside = budgets[: step + 1] - lengths(x).clamp(max=x["window"])
        assert_equal(beside.sum(0), torch.minimum(whole(x), room(x) * (step + 1)))
