"""HubKV without its gate: HubKV Appendix B."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.inputs import INPUTS
from spec_tests.strategies import grid

pytestmark = pytest.mark.spec("HubKV-B")


@given(INPUTS["ungated_refine"])
def test_the_ungated_variant_is_refinement_at_ratio_one(impl, x):
    assert_close(impl.ungated_refine(**x), impl.hubkv_refine(ratio=1.0, **x))


@given(grid(2, 3, 12), st.integers(0, 4))
def test_the_ungated_variant_halves_whatever_the_compression(impl, scores, radius):
    alike = impl.ungated_refine(scores, None, radius, tau=0.0)
    assert_equal(alike, impl.smd(scores, radius))
