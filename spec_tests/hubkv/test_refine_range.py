"""Where refinement would leave the range of its dtype, it refuses: HubKV §3.3, Appendix B."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close
from spec_tests.draw import grid
from spec_tests.inputs.hubkv_refine import ratios


def assert_refused(refine, *args, **knobs):
    """The scores are named, whatever it was that overflowed."""
    with pytest.raises(ValueError, match=r"^scores must be"):
        refine(*args, **knobs)


@pytest.mark.spec("HubKV-13", "HubKV-B")
@given(ratios)
def test_head_weights_out_of_range_are_refused(impl, ratio):
    """Also at ratio 0, where an infinite correction would count for nothing times infinity."""
    scores = torch.zeros(1, 10, 64)
    scores[0, 0, 0] = 1
    scores[0, 1:] = torch.linspace(0.5, 0.500001, 64)
    assert_refused(impl.hubkv_refine, scores, ratio, tau=100.0, maximum=math.inf)
    assert_refused(impl.ungated_refine, scores, tau=100.0, maximum=math.inf)


@pytest.mark.spec("HubKV-13", "HubKV-B")
@given(st.integers(64, 10000), st.integers(50, 100))
def test_corrected_scores_out_of_range_are_refused(impl, score, percent):
    scores, bounds = torch.full((1, 2, 4), float(score)), dict(minimum=1e38, maximum=1e38)
    assert_refused(impl.hubkv_refine, scores, percent / 100, **bounds)
    assert_refused(impl.ungated_refine, scores, **bounds)


@pytest.mark.spec("HubKV-13")
@given(grid(2, 3, 8), st.integers(1, 9))
def test_a_correction_out_of_range_may_count_for_little(impl, scores, percent):
    """What has to be finite is the mixture."""
    scores, bounds, ratio = 2.0**7 * scores, dict(minimum=1e37, maximum=1e37), percent / 100
    refined = impl.hubkv_refine(scores, ratio, **bounds)
    exact = impl.hubkv_refine(scores.double(), ratio, **bounds)
    assert_close(refined, exact)


@pytest.mark.spec("HubKV-13", "HubKV-B")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
@given(st.none() | st.just(torch.arange(128).reshape(1, 2, 64) > 99))
def test_what_only_the_last_rounding_overflows_is_refused(impl, dtype, protected):
    """A head of weight 1.2 beside an even one; so too with tokens set aside."""
    top = torch.finfo(dtype).max * 0.99 if dtype == torch.float16 else torch.finfo(dtype).max ** 0.5
    scores = torch.zeros(1, 2, 64, dtype=dtype)
    scores[0, 0, ::9], scores[0, 1] = top, top * 0.6
    knobs = {} if dtype == torch.float16 else dict(minimum=2 * top, maximum=3 * top)
    assert_refused(impl.hubkv_refine, scores, 0.95, protected, **knobs)
    assert_refused(impl.ungated_refine, scores, protected, **knobs)
