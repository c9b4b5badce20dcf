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


@given(INPUTS["pyramidkv_budgets"])
def test_rounded_steps_overspend_by_what_is_documented(impl, x):
    budgets = impl.pyramidkv_budgets(**x | dict(exact=False))
    layers = x["layers"]
    over = budgets.sum(0) - layers * spent_on_average(x)
    drop = 2 * (budgets[0] - spent_on_average(x))
    assert_equal(2 * over, layers * (drop % max(1, layers - 1)))


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


@given(INPUTS["pyramidkv_budgets"])
def test_one_layer_or_a_beta_of_one_is_an_even_budget(impl, x):
    for change in (dict(layers=1), dict(beta=1)):
        budgets = impl.pyramidkv_budgets(**x | change)
        assert_equal(budgets, spent_on_average(x).expand(budgets.shape).clone())


@given(st.integers(0, 8), st.integers(20, 60), st.integers(2, 7), st.integers(2, 20), st.booleans())
def test_a_prompt_below_twice_the_budget_beyond_the_window_has_no_pyramid(
    impl, window, spare, layers, beta, exact
):
    keep, enough = window + spare, 2 * spare
    tokens = torch.tensor([keep, (keep + enough) // 2, enough - 1, enough])
    budgets = impl.pyramidkv_budgets(keep, layers, tokens, window, beta, exact)
    assert (budgets[:, :-1] == keep).all()
    assert budgets[0, -1] > keep > budgets[-1, -1]


@pytest.mark.spec("GraphKV-SnapKV")
@given(st.integers(1, 5), st.integers(0, 12), st.integers(0, 12), st.booleans())
def test_the_budgets_hold_the_window_and_are_kept_exactly(impl, layers, tokens, spare, exact):
    attended = torch.arange(2.0 * tokens).sin().reshape(1, 2, tokens, 1)
    scored = impl.snapkv(attended, attended, 3)
    scores, protected = (part.expand(layers, 1, 2, tokens) for part in scored)
    budgets = impl.pyramidkv_budgets(3 + spare, layers, torch.tensor([tokens]), 3, exact=exact)
    keep = budgets[..., None].expand(scores.shape[:-1])
    kept = impl.retain(scores, protected, keep=keep)
    assert_equal(kept.sum(-1), keep.clone())
    assert kept[protected].all()
