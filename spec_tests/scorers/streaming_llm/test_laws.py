"""StreamingLLM: the first tokens and the last."""

import pytest
import torch
from hypothesis import given

from spec_tests.accuracy import assert_equal
from spec_tests.inputs import INPUTS
from spec_tests.scorers.padding_invariance import alone

pytestmark = pytest.mark.spec("HubKV-StreamingLLM")


@given(INPUTS["streaming_llm"])
def test_the_sinks_are_the_first_real_tokens(impl, x):
    protected = impl.streaming_llm(**x).protected
    for row, parts in alone(x):
        real = parts["keys"].shape[-2]
        position = torch.arange(protected.shape[-1]) - (protected.shape[-1] - real)
        sinks = (position >= 0) & (position < x["sinks"])
        assert_equal(protected[row], sinks.expand(protected[row].shape).clone())


@given(INPUTS["streaming_llm"])
def test_a_score_is_the_number_of_real_tokens_up_to_it(impl, x):
    scores = impl.streaming_llm(**x).scores
    for row, parts in alone(x):
        real = parts["keys"].shape[-2]
        positions = [0.0] * (scores.shape[-1] - real) + [t + 1.0 for t in range(real)]
        assert scores[row].tolist() == [positions] * scores.shape[-2]
