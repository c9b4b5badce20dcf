"""Properties of all scorers: padding, precision, no sentinels."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close, assert_equal, cast
from spec_tests.inputs import SCORED
from spec_tests.scorers.attention_inputs import attended
from spec_tests.scorers.padding_invariance import alone
from spec_tests.strategies import signed_sixteenths

pytestmark = pytest.mark.spec("HubKV-11", "GraphKV-4.1")

sequences = attended(least=2, number=signed_sixteenths)

# These scorers have other arguments, or several sequences of queries, and their own laws.
ELSEWHERE = ("expected_attention", "fastkvzip", "kvzip")
SCORERS: dict[str, Callable[..., Any]] = {
    **{name: scorer for name, scorer in SCORED.items() if name not in ELSEWHERE},
    "knorm, below 0": lambda impl, keys, valid, **_: impl.knorm(keys, valid),
    "snapkv, max": lambda impl, queries, keys, valid, **_: impl.snapkv(
        queries, keys, window=2, kernel=3, pooling="max", valid=valid
    ),
}
every_scorer = pytest.mark.parametrize("scorer", SCORERS.values(), ids=SCORERS)


@every_scorer
@given(sequences)
def test_a_padded_row_scores_as_the_row_alone(impl, scorer, x):
    scores, protected = scorer(impl, **x)
    for row, parts in alone(x):
        lone = scorer(impl, **parts, valid=None)
        padding = scores.shape[-1] - parts["keys"].shape[-2]
        assert not scores[row][:, :padding].any()
        assert not protected[row][:, :padding].any()
        assert_close(scores[row][:, padding:], lone.scores.double())
        assert_equal(protected[row][:, padding:].clone(), lone.protected)


@every_scorer
@given(sequences)
def test_what_stands_at_padding_changes_nothing(impl, scorer, x):
    count = x["queries"].shape[-2]
    valid = torch.ones(x["keys"].shape[-2]).bool() if x["valid"] is None else x["valid"]
    other = dict(x)
    other["keys"] = torch.where(valid[..., None, :, None], x["keys"], 9.0)
    of_queries = valid[..., None, valid.shape[-1] - count :, None]
    other["queries"] = torch.where(of_queries, x["queries"], -9.0)
    assert_equal(scorer(impl, **other), scorer(impl, **x))


@every_scorer
@given(sequences, st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16]))
def test_scores_are_finite_float32_or_float64_whatever_is_protected(impl, scorer, x, dtype):
    scores, protected = scorer(impl, **cast(x, dtype))
    assert scores.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert protected.dtype == torch.bool
    assert scores.shape == protected.shape == x["keys"].shape[:-1]
    assert torch.isfinite(scores).all()
