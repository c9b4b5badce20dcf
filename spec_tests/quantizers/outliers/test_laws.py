"""The largest and the smallest members of a row: GEAR's sparse part."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_equal
from spec_tests.inputs import INPUTS
from spec_tests.quantizers.outliers import oracle
from spec_tests.quantizers.outliers.strategies import shares

pytestmark = pytest.mark.spec("HEX-GEAR")


@given(INPUTS["outlier_mask"])
def test_what_is_left_is_the_middle_of_the_order(impl, x):
    mask, members = impl.outlier_mask(**x), x["x"].shape[-1]
    count = int(Fraction(str(x["ratio"])) * members / 2)
    assert (mask.sum(-1) == 2 * count).all()
    middle = x["x"].sort(-1).values[..., count : members - count]
    assert_equal(x["x"][~mask].reshape(middle.shape).sort(-1).values, middle)


@given(INPUTS["outlier_mask"])
def test_outliers_are_those_found_one_row_at_a_time(impl, x):
    mask, share = impl.outlier_mask(**x), Fraction(str(x["ratio"]))
    for row in np.ndindex(*mask.shape[:-1]):
        places = set(mask[row].nonzero().flatten().tolist())
        assert places == oracle.outliers(x["x"][row].tolist(), share)


@given(st.integers(0, 30), shares)
def test_no_member_is_both_where_all_are_equal(impl, members, ratio):
    mask = impl.outlier_mask(torch.ones(members), ratio)
    count = int(mask.sum()) // 2
    ends = torch.arange(members)
    assert_equal(mask, (ends < count) | (ends >= members - count))


@given(st.integers(1, 99))
def test_a_block_of_twenty_tokens_has_no_outlier_at_two_percent(impl, members):
    marked = int(impl.outlier_mask(torch.arange(members).float()).sum())
    assert marked == 0, "the first member of each end comes with the hundredth"
    assert int(impl.outlier_mask(torch.arange(100).float()).sum()) == 2


def test_a_share_is_the_decimal_number_it_is_written_as(impl):
    assert int(impl.outlier_mask(torch.arange(100.0), 0.58).sum()) == 58
    assert int(0.58 * 100) == 57, "half of it, rounded down at each end, would be 56"
