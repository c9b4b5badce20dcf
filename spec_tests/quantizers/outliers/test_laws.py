"""The largest and smallest members of a row: GEAR's sparse part."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import example, given

from spec_tests.inputs import INPUTS
from spec_tests.quantizers.outliers import oracle

pytestmark = pytest.mark.spec("HEX-GEAR")


@given(INPUTS["outlier_mask"])
@example(dict(x=torch.arange(99.0), ratio=0.02))  # the first of each end comes with the hundredth
@example(dict(x=torch.arange(100.0), ratio=0.58))  # a decimal: 58 times 0.01, not 57
def test_outliers_are_those_found_one_row_at_a_time(impl, x):
    mask, share = impl.outlier_mask(**x), Fraction(str(x["ratio"]))
    for row in np.ndindex(*mask.shape[:-1]):
        places = set(mask[row].nonzero().flatten().tolist())
        assert places == oracle.outliers(x["x"][row].tolist(), share)
