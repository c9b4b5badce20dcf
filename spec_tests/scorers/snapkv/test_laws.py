"""SnapKV: the pooled attention of the last window."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.attention.strategies import shifts
from spec_tests.inputs import INPUTS
from spec_tests.scorers.attention_inputs import (
    attended,
    log_sum_exp_with_padding_fill,
    two_row_batch,
)
from spec_tests.scorers.padding_invariance import assert_rows
from spec_tests.scorers.snapkv import oracle
from spec_tests.strategies import signed_sixteenths

pytestmark = pytest.mark.spec("GraphKV-SnapKV")

poolings = st.sampled_from(["average", "max"])
kernels = st.sampled_from([1, 3, 5])
sequences = attended(least=3, number=signed_sixteenths)


@given(two_row_batch(), st.integers(1, 4), kernels, poolings)
def test_a_score_is_the_pooled_attention_of_the_window(impl, x, window, kernel, pooling):
    scores = impl.snapkv(**x, window=window, kernel=kernel, pooling=pooling).scores
    choice = dict(window=window, kernel=kernel, pooling=pooling)
    assert_rows(scores, x, partial(oracle.snapkv, **choice))


@given(sequences, shifts, st.integers(1, 3), poolings)
def test_a_score_is_of_what_the_log_sum_exp_leaves_of_a_logit(impl, x, shift, window, pooling):
    rest = dict(window=window, pooling=pooling)
    wanted = impl.snapkv(**x, **rest)
    scored = impl.snapkv(**x, **rest, log_sum_exp=log_sum_exp_with_padding_fill(x, 0.0) + shift)
    assert_close(scored.scores, wanted.scores.double() * math.exp(-shift), window)
    assert_equal(scored.protected, wanted.protected)


@given(INPUTS["snapkv"])
def test_the_last_window_of_real_tokens_is_protected_and_scores_nothing(impl, x):
    scores, protected = impl.snapkv(**x)
    valid = torch.ones(scores.shape[-1]).bool() if x["valid"] is None else x["valid"]
    last = valid & impl.recent_mask(scores.shape[-1], x["window"])
    assert_equal(protected, last[..., None, :].expand(protected.shape).clone())
    assert (scores[protected] == 0).all()
