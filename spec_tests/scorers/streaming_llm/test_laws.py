"""StreamingLLM: the first tokens and the last."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_equal
from spec_tests.inputs import INPUTS
from spec_tests.scorers.padding_invariance import alone
from spec_tests.scorers.streaming_llm import oracle

pytestmark = pytest.mark.spec("HubKV-StreamingLLM")


@given(INPUTS["streaming_llm"], st.sampled_from([2, 1, 3, 0, 10]))
def test_the_first_and_the_last_real_tokens_are_kept(impl, x, spare):
    scores, protected = impl.streaming_llm(**x)
    keep = x["sinks"] + spare
    for row, parts in alone(x):
        real = parts["keys"].shape[-2]
        padding = scores.shape[-1] - real
        budget = min(keep, real)
        kept = impl.retain(scores[row], protected[row], keep=budget)
        wanted = {padding + t for t in oracle.streaming_llm_kept(real, keep, x["sinks"])}
        for head in kept:
            assert set(head.nonzero().flatten().tolist()) == wanted


@given(INPUTS["streaming_llm"])
def test_the_sinks_are_the_first_real_tokens(impl, x):
    protected = impl.streaming_llm(**x).protected
    for row, parts in alone(x):
        real = parts["keys"].shape[-2]
        place = torch.arange(protected.shape[-1]) - (protected.shape[-1] - real)
        sinks = (place >= 0) & (place < x["sinks"])
        assert_equal(protected[row], sinks.expand(protected[row].shape).clone())


@given(INPUTS["streaming_llm"])
def test_a_score_is_the_number_of_real_tokens_up_to_it(impl, x):
    scores = impl.streaming_llm(**x).scores
    for row, parts in alone(x):
        real = parts["keys"].shape[-2]
        positions = [0.0] * (scores.shape[-1] - real) + [t + 1.0 for t in range(real)]
        assert scores[row].tolist() == [positions] * scores.shape[-2]
