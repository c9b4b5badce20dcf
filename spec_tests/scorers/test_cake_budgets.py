"""CAKE's budgets and their cascade."""

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_equal
from spec_tests.inputs import INPUTS
from spec_tests.oracles import cake as oracle

budgeted = INPUTS["cake_budgets"]


def lengths(x):
    """Return the number of tokens of every row."""
    return torch.as_tensor(x["tokens"]).expand(x["preferences"].shape[1:])


def room(x):
    """Return how many tokens each row has beside the window."""
    return (lengths(x) - x["window"]).clamp(min=0)


@pytest.mark.spec("GraphKV-CAKE")
@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(0, 9), st.integers(0, 12))
def test_budgets_of_whole_preferences_agree_with_counting(impl, wishes, beyond, tokens):
    budgets = impl.cake_budgets(torch.tensor(wishes).float(), 2 + beyond, tokens, 2)
    assert budgets.tolist() == oracle.budgets(wishes, 2 + beyond, tokens, 2)


@pytest.mark.spec("GraphKV-CAKE")
@given(budgeted)
def test_budgets_add_up_to_all_there_is(impl, x):
    budgets = impl.cake_budgets(**x)
    layers = len(x["preferences"])
    total = torch.minimum(torch.tensor((x["keep"] - x["window"]) * layers), room(x) * layers)
    beside = budgets - lengths(x).clamp(max=x["window"])
    assert_equal(beside.sum(0), total)


@pytest.mark.spec("GraphKV-CAKE")
@given(budgeted)
def test_budgets_hold_the_window_and_no_more_than_there_is(impl, x):
    budgets = impl.cake_budgets(**x)
    assert (budgets >= lengths(x).clamp(max=x["window"])).all()
    assert (budgets <= lengths(x)).all()


@pytest.mark.spec("GraphKV-CAKE")
@given(budgeted)
def test_a_layer_that_prefers_more_gets_at_most_a_place_less(impl, x):
    budgets, wishes = impl.cake_budgets(**x), x["preferences"]
    for more, less in product(range(len(wishes)), repeat=2):
        assert (budgets[more] + 1 >= budgets[less])[wishes[more] >= wishes[less]].all()


@pytest.mark.spec("GraphKV-CAKE")
@given(budgeted, st.sampled_from([2.0**-20, 0.5, 2.0, 2.0**40]))
def test_the_scale_of_preferences_does_not_matter(impl, x, scale):
    scaled = impl.cake_budgets(**x | dict(preferences=x["preferences"].double() * scale))
    assert_equal(scaled, impl.cake_budgets(**x))


@pytest.mark.spec("GraphKV-CAKE")
@given(st.integers(1, 6), st.integers(0, 9), st.integers(0, 12), st.sampled_from([0.0, 0.5]))
def test_layers_that_prefer_the_same_share_equally(impl, layers, beyond, tokens, level):
    budgets = impl.cake_budgets(torch.full((layers,), level), 2 + beyond, tokens, 2)
    assert int(budgets.max()) - int(budgets.min()) <= 1
    assert_equal(budgets, budgets.sort(descending=True).values)


@pytest.mark.spec("GraphKV-CAKE")
@given(budgeted)
def test_a_row_of_a_batch_gets_what_it_gets_alone(impl, x):
    budgets, every = impl.cake_budgets(**x), lengths(x)
    for row in product(*map(range, every.shape)):
        own = x | dict(preferences=x["preferences"][(slice(None), *row)], tokens=int(every[row]))
        assert_equal(budgets[(slice(None), *row)].clone(), impl.cake_budgets(**own))


@pytest.mark.spec("GraphKV-CAKE")
@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(0, 9), st.integers(0, 12))
def test_the_cascade_of_whole_preferences_agrees_with_counting(impl, wishes, beyond, tokens):
    cascade = impl.cake_cascade(torch.tensor(wishes).float(), 2 + beyond, tokens, 2)
    assert cascade.tolist() == oracle.cascade(wishes, 2 + beyond, tokens, 2)


@pytest.mark.spec("GraphKV-CAKE")
@given(budgeted)
def test_what_a_layer_has_given_up_does_not_come_back(impl, x):
    cascade = impl.cake_cascade(**x)
    for step in range(1, len(cascade)):
        assert (cascade[step, :step] <= cascade[step - 1, :step]).all()


@pytest.mark.spec("GraphKV-CAKE")
@given(budgeted)
def test_every_step_of_the_cascade_shares_the_whole_budget(impl, x):
    cascade, layers = impl.cake_cascade(**x), len(x["preferences"])
    total = torch.tensor((x["keep"] - x["window"]) * layers)
    for step, budgets in enumerate(cascade):
        assert not budgets[step + 1 :].any()
        beside = budgets[: step + 1] - lengths(x).clamp(max=x["window"])
        assert_equal(beside.sum(0), torch.minimum(total, room(x) * (step + 1)))


@pytest.mark.spec("GraphKV-CAKE")
@given(budgeted)
def test_a_step_of_the_cascade_knows_no_later_layer(impl, x):
    cascade = impl.cake_cascade(**x)
    for step in range(len(cascade)):
        other = x["preferences"].clone()
        other[step + 1 :] = 1.0
        changed = impl.cake_cascade(**x | dict(preferences=other))
        assert_equal(changed[step], cascade[step])
