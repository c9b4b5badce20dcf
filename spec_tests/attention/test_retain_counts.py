"""How many entries a budget keeps: HubKV §2.1."""

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_equal
from spec_tests.inputs import INPUTS
from spec_tests.inputs.retain import AXES, orderable

every_scope = pytest.mark.parametrize("scope", AXES)
LAYOUT = {"head": (), "layer": (2,), "model": (2, 1, 2)}
SOME = (1, 2, 7, 20, 96, 99, 100, 300)


@pytest.mark.spec("HubKV-1")
def test_the_budget_is_the_exact_floor_of_what_is_not_removed(impl):
    for pool, hundredths in product(range(301), range(101)):
        assert impl.kept_count(pool, hundredths / 100) == pool * (100 - hundredths) // 100


@pytest.mark.spec("HubKV-1")
@given(INPUTS["kept_count"])
def test_at_least_the_ratio_is_removed_and_hardly_more(impl, x):
    kept = impl.kept_count(**x)
    assert 0 <= kept <= x["pool"]
    assert impl.kept_count(x["pool"] + 1, x["ratio"]) - kept in (0, 1)


@pytest.mark.spec("HubKV-1")
@every_scope
def test_every_pool_keeps_exactly_its_budget(impl, scope):
    """Every N, each at another ratio; every ratio, at a few N."""
    cases = [(n, 37 * n % 101) for n in range(301)] + [*product(SOME, range(101))]
    for tokens, hundredths in cases:
        scores = (torch.arange(tokens) * 7 % 5 / 4).expand(*LAYOUT[scope], tokens)
        kept = impl.retain(scores, ratio=hundredths / 100, scope=scope)
        size = kept.numel()
        assert int(kept.sum()) == size * (100 - hundredths) // 100, (tokens, hundredths)


@pytest.mark.spec("HubKV-1")
@given(orderable(2, 3, 5), st.lists(st.integers(0, 5), min_size=6, max_size=6))
def test_a_tensor_of_budgets_serves_each_head_as_if_alone(impl, scores, keep):
    budget = torch.tensor(keep).reshape(2, 3)
    kept = impl.retain(scores, keep=budget)
    for head in product(range(2), range(3)):
        assert_equal(kept[head], impl.retain(scores[head], keep=int(budget[head])))


@pytest.mark.spec("HubKV-1")
@pytest.mark.parametrize("value", [torch.nan, torch.inf], ids=str)
@pytest.mark.parametrize("name", ["ranking", "retain"])
def test_what_has_no_place_in_the_order_is_refused(impl, name, value):
    scores = torch.tensor([0.5, value, 0.25])
    budget = dict(keep=1) if name == "retain" else {}
    with pytest.raises(ValueError, match="scores"):
        getattr(impl, name)(scores, **budget)


@pytest.mark.spec("HubKV-1")
@every_scope
def test_a_ratio_that_cannot_hold_the_protected_entries_is_refused(impl, scope):
    protected = torch.ones(2, 2, 4, dtype=torch.bool)
    with pytest.raises(ValueError, match="ratio"):
        impl.retain(torch.zeros(2, 2, 4), protected, ratio=0.25, scope=scope)
    assert impl.retain(torch.zeros(2, 2, 4), protected, ratio=0.0, scope=scope).all()
