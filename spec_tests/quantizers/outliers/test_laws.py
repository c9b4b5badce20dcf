"""The largest and smallest members of a row: GEAR's sparse part."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.inputs import INPUTS
from spec_tests.quantizers.outliers import oracle

pytestmark = pytest.mark.spec("HEX-GEAR")


@given(INPUTS["outlier_mask"])
def test_outliers_are_those_found_one_row_at_a_time(impl, x):
    mask, share = impl.outlier_mask(**x), Fraction(str(x["ratio"]))
    for row in np.ndindex(*mask.shape[:-1]):
        places = set(mask[row].nonzero().flatten().tolist())
        assert places == oracle.outliers(x["x"][row].tolist(), share)


@given(st.integers(1, 99))
def test_a_block_of_twenty_tokens_has_no_outlier_at_two_percent(impl, members):
    marked = int(impl.outlier_mask(torch.arange(members).float()).sum())
    assert marked == 0, "the first member of each end comes with the hundredth"
    assert int(impl.outlier_mask(torch.arange(100).float()).sum()) == 2


def test_a_share_is_the_decimal_number_it_is_written_as(impl):
    assert int(impl.outlier_mask(torch.arange(100.0), 0.58).sum()) == 58
    assert int(0.58 * 100) == 57, "half of it, rounded down at each end, would be 56"
