"""Strategies for rows with outliers."""

from hypothesis import strategies as st

from spec_tests.quantizers.kivi.strategies import keys
from spec_tests.strategies import heads, importance

shares = st.sampled_from([0.0, 0.02, 0.25, 0.5, 1.0])


@st.composite
def outlier_mask(draw):
    """Rows, and any share of outliers."""
    shape = (*draw(heads), draw(st.integers(0, 12)))
    return dict(x=draw(importance(*shape, low=-4, high=4)), ratio=draw(shares))


GOOD = dict(outlier_mask=dict(x=keys, ratio=0.3))
