"""Budgets that differ by head: HubKV Appendix B."""

from operator import itemgetter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reference
from spec_tests.from_signature import draw_choices
from spec_tests.hubkv.discount.oracle import fractions
from spec_tests.hubkv.head_budgets import oracle
from spec_tests.inputs import INPUTS
from spec_tests.strategies import grid

pytestmark = pytest.mark.spec("HubKV-B")

rules = draw_choices(reference.head_budgets).map(itemgetter("rule"))


@st.composite
def ever_sharper_heads(draw):
    """Heads with the same few scores, each on half as many tokens as the head before."""
    level = draw(st.integers(1, 16)) / 16
    scores = torch.zeros(4, 16)
    for head in range(4):
        scores[head, : 16 // 2**head] = level
    order = draw(st.permutations(range(16)))
    return scores[:, list(order)]


@given(INPUTS["head_budgets"])
def test_budgets_add_up_in_every_layer(impl, x):
    budgets = impl.head_budgets(**x)
    assert (budgets.sum(-1) == x["keep"] * x["scores"].shape[-2]).all()


@given(grid(3, 8), rules, st.integers(3, 8), st.integers(0, 2))
def test_a_head_of_nothing_but_protected_tokens_keeps_them_all(impl, scores, rule, keep, head):
    protected = torch.zeros(3, 8, dtype=torch.bool)
    protected[head] = True
    assert impl.head_budgets(scores, keep, rule, protected)[head] == 8


@given(rules, st.integers(1, 16), st.integers(1, 5), st.integers(0, 12), st.integers(0, 4))
def test_uniform_scores_share_equally(impl, rule, level, heads, keep, sinks):
    scores = torch.full((2, heads, 12), level / 16)
    protected = impl.protected_mask(12, sinks, 0).expand(scores.shape)
    keep = max(keep, sinks)
    assert (impl.head_budgets(scores, keep, rule, protected) == keep).all()


@pytest.mark.parametrize(("rule", "sign"), [("selectivity", 1), ("entropy", -1)])
@given(scores=ever_sharper_heads(), keep=st.integers(0, 16))
def test_a_more_selective_or_more_evenly_spread_head_gets_no_less(impl, rule, sign, scores, keep):
    assert (sign * impl.head_budgets(scores, keep, rule).diff() >= 0).all()


@given(ever_sharper_heads())
def test_entropy_counts_the_tokens_a_head_spreads_over(impl, scores):
    """Uniform over 16, 8, 4, 2 of 30 tokens: the first keeps 30, the rest share 30 as 8 : 4 : 2."""
    scores = torch.cat([scores, torch.zeros(4, 14)], -1)
    assert impl.head_budgets(scores, 15, "entropy").tolist() == [30, 17, 9, 4]


@given(grid(4, 6), st.integers(0, 6))
def test_waterfill_counts_the_winners_of_a_common_ranking(impl, scores, keep):
    expected = oracle.count_winners_per_head([fractions(row) for row in scores], 4 * keep)
    assert impl.head_budgets(scores, keep, "waterfill").tolist() == expected
