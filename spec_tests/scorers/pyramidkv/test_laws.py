"""PyramidKV: budgets along a line from the first layer down to the last."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_equal
from spec_tests.inputs import INPUTS
from spec_tests.scorers.pyramidkv import oracle

pytestmark = pytest.mark.spec("GraphKV-PyramidKV")


def lengths(x):
    """Return the number of tokens of every row."""
    return torch.as_tensor(x["tokens"])


def spent_on_average(x):
    """Return what every layer would get of an even budget, a row."""
    return lengths(x).clamp(max=x["keep"])


@given(INPUTS["pyramidkv_budgets"])
def test_every_row_has_the_budgets_of_its_own_length(impl, x):
    budgets = impl.pyramidkv_budgets(**x)
    assert budgets.shape == (x["layers"], *lengths(x).shape)
    for found, tokens in zip(
        budgets.reshape(x["layers"], -1).T, lengths(x).flatten().tolist(), strict=True
    ):
        assert found.tolist() == oracle.pyramidkv_budgets(**x | dict(tokens=tokens))


@given(INPUTS["pyramidkv_budgets"])
def test_exact_budgets_add_up_to_the_budget(impl, x):
    budgets = impl.pyramidkv_budgets(**x | dict(exact=True))
    assert_equal(budgets.sum(0), x["layers"] * spent_on_average(x))


@pytest.mark.parametrize(("cap", "percent"), [(512, 1.35), (128, 15.10)])
def test_32_layers_overspend_by_the_known_share(impl, cap, percent):
    spent = int((impl.pyramidkv_budgets(cap, 32, 8000) - 32).sum())
    assert round(100 * (spent / (32 * (cap - 32)) - 1), 2) == percent


@given(INPUTS["pyramidkv_budgets"])
def test_budgets_never_grow_from_layer_to_layer_nor_leave_their_bounds(impl, x):
    budgets = impl.pyramidkv_budgets(**x)
    assert (budgets.diff(dim=0) <= 0).all()
    assert (budgets <= lengths(x)).all()
    assert (budgets >= lengths(x).clamp(max=x["window"])).all()


@given(st.integers(0, 8), st.integers(20, 60), st.integers(2, 7), st.integers(2, 20), st.booleans())
def test_a_prompt_below_twice_the_budget_beyond_the_window_has_no_pyramid(
    impl, window, spare, layers, beta, exact
):
    keep, enough = window + spare, 2 * spare
    tokens = torch.tensor([keep, (keep + enough) // 2, enough - 1, enough])
    budgets = impl.pyramidkv_budgets(keep, layers, tokens, window, beta, exact)
    assert (budgets[:, :-1] == keep).all()
    assert budgets[0, -1] > keep > budgets[-1, -1]
