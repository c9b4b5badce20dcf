"""Masks in compressed sparse rows: HEX §3.2."""

import pytest
from hypothesis import given

from spec_tests.inputs import INPUTS

pytestmark = pytest.mark.spec("HEX-3.2c")


@given(INPUTS["to_csr"])
def test_rows_hold_their_columns_in_order(impl, x):
    mask = x["mask"]
    offsets, columns = impl.to_csr(mask)
    bounds = offsets.tolist()
    assert len(bounds) == len(mask) + 1
    for row, first, last in zip(mask, bounds, bounds[1:], strict=False):
        assert columns[first:last].tolist() == row.nonzero().flatten().tolist()
