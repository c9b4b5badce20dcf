"""Mean and covariance of queries before the rotary embedding."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.scorers.padding_masks import masks
from spec_tests.scorers.query_statistics import oracle
from spec_tests.strategies import signed_sixteenths

pytestmark = pytest.mark.spec("HubKV-ExpectedAttention")


@st.composite
def prompt(draw):
    """Two rows of queries with different padding, without earlier statistics."""
    tokens, width = draw(st.integers(0, 9)), draw(st.integers(1, 2))
    return dict(
        queries=draw(signed_sixteenths(2, draw(st.integers(1, 3)), tokens, width)),
        sinks=draw(st.integers(0, 5)),
        valid=draw(masks((2,), tokens)),
    )


def assert_moments(actual, expected):
    """Assert equal counts, and moments up to the rounding of queries of size 1."""
    assert_equal(actual.counted, expected.counted)
    assert_equal(actual.skipped, expected.skipped)
    assert_close(actual.mean, expected.mean.double())
    assert_close(actual.covariance, expected.covariance.double())


@given(prompt())
def test_moments_agree_with_scalar_loops(impl, x):
    found = impl.query_statistics(**x)
    for row in range(2):
        real = x["queries"].shape[-2] if x["valid"] is None else int(x["valid"][row].sum())
        queries = x["queries"][row][:, x["queries"].shape[-2] - real :][:, x["sinks"] :]
        assert int(found.counted[row]) == queries.shape[1]
        assert int(found.skipped[row]) == min(real, x["sinks"])
        for h, head in enumerate(queries.double().tolist()):
            mean, covariance = oracle.moments(head, queries.shape[-1])
            assert_close(found.mean[row, h], torch.tensor(mean))
            assert_close(found.covariance[row, h], torch.tensor(covariance))


@given(prompt(), st.lists(st.integers(0, 9), max_size=3))
def test_a_prompt_in_chunks_has_the_moments_of_one_piece(impl, x, cuts):
    tokens, found = x["queries"].shape[-2], None
    bounds = [0, *sorted(min(cut, tokens) for cut in cuts), tokens]
    for start, stop in pairwise(bounds):
        valid = None if x["valid"] is None else x["valid"][:, start:stop]
        piece = x["queries"][..., start:stop, :]
        found = impl.query_statistics(piece, x["sinks"], valid, found)
    assert_moments(found, impl.query_statistics(**x))
