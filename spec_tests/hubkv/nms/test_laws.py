"""Observation 3: HubKV §2.3, Appendix I."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.hubkv.coverage.oracle import top
from spec_tests.inputs import INPUTS
from spec_tests.strategies import grid


@st.composite
def clustered(draw):
    """A cluster of seven in the first of eight regions, and single peaks in three of the others.

    The cluster's scores exceed the peaks; multiplied by 0.3 they do not.
    """
    scores = draw(grid(128, low=0, high=2))
    scores[4:11] = draw(grid(7, low=12, high=15))
    scores[7] = 1.0
    regions = draw(st.permutations(range(1, 8)))[:3]
    peaks = [16 * region + draw(st.integers(4, 12)) for region in regions]
    scores[peaks] = draw(grid(3, low=6, high=10))
    return scores


@pytest.mark.spec("HubKV-Obs3")
@given(INPUTS["nms"])
def test_only_local_maxima_keep_their_score(impl, x):
    scores, radius, factor = x["scores"], x["radius"], x["factor"]
    out, tokens = impl.nms(**x), scores.shape[-1]
    for i in range(tokens):
        near = [j for j in range(max(0, i - radius), min(tokens, i + radius + 1)) if j != i]
        beats = [
            scores[..., i] > scores[..., j] if j < i else scores[..., i] >= scores[..., j]
            for j in near
        ]
        peak = torch.stack([*beats, torch.ones_like(scores[..., i], dtype=torch.bool)]).all(0)
        assert_equal(out[..., i][peak], scores[..., i][peak])
        assert_close(out[..., i], torch.where(peak, 1, factor) * scores[..., i].double())


@pytest.mark.spec("HubKV-Obs3", "HubKV-Obs1")
@given(clustered())
def test_suppression_covers_more_segments_than_top_k(impl, scores):
    plain, spread = top(scores, 4), top(impl.nms(scores), 4)
    covered = [impl.segment_coverage(torch.tensor(o), 128, 8).sum() for o in (plain, spread)]
    assert covered[0] == 1 / 8
    assert covered[1] == 4 / 8
