"""A needle in a haystack: §5.3 and Fig. 4."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.inputs import INPUTS

pytestmark = pytest.mark.spec("GraphKV-Needle")


@given(INPUTS["hide_needle"])
def test_a_needle_stands_whole_in_the_first_tokens_of_its_haystack(impl, x):
    hidden = impl.hide_needle(**x).tolist()
    position = next((index for index, token in enumerate(hidden) if token >= 100), 0)
    width = len(x["needle"])
    assert hidden[position : position + width] == x["needle"].tolist()
    assert hidden[:position] + hidden[position + width :] == list(range(x["length"] - width))


@given(st.integers(0, 40), st.integers(0, 3), st.integers(1, 12))
def test_depths_from_0_to_1_reach_every_place(impl, around, surplus, width):
    """With one step of depth for each position, the needle comes before each token in turn."""
    haystack, needle = torch.arange(around + surplus), torch.arange(100, 100 + width)
    for position in range(around + 1):
        depth = position / max(1, around) + 1e-9 if position < around else 1.0
        hidden = impl.hide_needle(haystack, needle, around + width, depth)
        assert hidden.tolist().index(100) == position


@given(INPUTS["needle_recall"], st.data())
def test_order_and_repetition_of_words_change_no_recall(impl, x, data):
    recall, said = impl.needle_recall(**x), x["responses"].shape[-1]
    order = torch.tensor(data.draw(st.permutations(range(said))), dtype=torch.int64)
    again = torch.cat([x["responses"][..., order], x["responses"]], -1)
    answer = torch.cat([x["answer"], x["answer"].flip(0)])
    assert_equal(impl.needle_recall(again, answer), recall)


@given(st.integers(1, 9), st.integers(0, 9), st.integers(0, 3))
def test_a_response_is_worth_the_words_of_the_answer_in_it(impl, words, right, wrong):
    right = min(right, words)
    response = torch.tensor([[*range(right), *range(50, 50 + wrong)]], dtype=torch.int64)
    recall = impl.needle_recall(response, torch.arange(words))
    assert_close(recall, torch.tensor([right / words]))
