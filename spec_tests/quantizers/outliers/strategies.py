"""Strategies for rows with outliers."""

from functools import partial

from hypothesis import strategies as st

from spec_tests.quantizers.kivi.strategies import keys
from spec_tests.strategies import importance, of_one_shape

shares = st.sampled_from([0.0, 0.02, 0.25, 0.5, 1.0])
x = partial(importance, low=-4, high=4)
INPUTS = dict(outlier_mask=of_one_shape(x=x, ratio=shares))

GOOD = dict(outlier_mask=dict(x=keys, ratio=0.3))
