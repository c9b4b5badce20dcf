"""HubKV without its gate: HubKV Appendix B."""

import pytest
from hypothesis import given

from spec_tests.accuracy import assert_close
from spec_tests.inputs import INPUTS

pytestmark = pytest.mark.spec("HubKV-B")


@given(INPUTS["ungated_refine"])
def test_the_ungated_variant_is_refinement_at_ratio_one(impl, x):
    assert_close(impl.ungated_refine(**x), impl.hubkv_refine(ratio=1.0, **x))
