"""The step between scoring and selecting: HubKV A.1, GraphKV §4.1, or none."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from reference import GraphSettings, NmsSettings, Scored
from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.inputs import INPUTS
from spec_tests.refinement import strategies
from spec_tests.refinement.strategies import hub_settings, refinement_inputs
from spec_tests.strategies import grid


@pytest.mark.spec("HubKV-13")
@given(refinement_inputs(hub_settings), st.sampled_from([0.0, 0.3, 1.0]))
def test_hub_settings_are_hubkvs_own_arguments(impl, x, ratio):
    scores, protected = x["scored"]
    expected = impl.hubkv_refine(scores, ratio, protected, **x["refinement"]._asdict())
    assert_close(impl.refine(**x, ratio=ratio), expected.double(), 4.0)


@pytest.mark.spec("GraphKV-4.1")
@given(refinement_inputs(strategies.graph_settings(kinds=strategies.KINDS)))
def test_graph_settings_are_graphkvs_own_arguments(impl, x):
    scores, protected = x["scored"]
    expected = impl.graphkv_refine(
        scores, x["keys"], x["keep"], protected=protected, queries=x["queries"],
        values=x["values"], **x["refinement"]._asdict(),
    )  # fmt: skip
    assert_close(impl.refine(**x), expected.double(), 4.0)


BESIDE_A_PROTECTED_TOKEN = dict(
    scored=Scored(torch.tensor([[1.0, 2.0, 1.0]]), torch.tensor([[False, True, False]])),
    refinement=NmsSettings(1, 0.5),
    keep=1,
)


@pytest.mark.spec("HubKV-Obs3")
@given(refinement_inputs(strategies.nms_settings))
@example(BESIDE_A_PROTECTED_TOKEN)
def test_suppression_compares_content_with_content_alone(impl, x):
    scores, protected = x["scored"]
    refined, (radius, factor) = impl.refine(**x), x["refinement"]
    for score, apart, z in zip(
        scores.flatten(0, -2).tolist(),
        protected.flatten(0, -2).tolist(),
        refined.flatten(0, -2).tolist(),
        strict=True,
    ):
        for i in (i for i, p in enumerate(apart) if not p):
            near = [j for j in range(len(score)) if abs(i - j) <= radius and not apart[j]]
            best = max(near, key=lambda j: (score[j], -j))
            assert z[i] == (score[i] if best == i else factor * score[i])


@pytest.mark.spec("HubKV-12", "GraphKV-4.1", "HubKV-Obs3")
@given(INPUTS["refine"], st.data())
def test_what_stands_outside_the_content_moves_no_score_inside(impl, x, data):
    scores, outside = x["scored"]
    if isinstance(x["refinement"], GraphSettings) and not x["refinement"].per_head:
        outside = outside.any(-2, keepdim=True).expand(outside.shape)
    others = data.draw(grid(*scores.shape, high=32))
    changed = x | dict(
        scored=Scored(torch.where(outside, others, scores), outside),
        keys=torch.where(outside[..., None], -x["keys"], x["keys"]),
    )
    before = impl.refine(**x | dict(scored=Scored(scores, outside)))
    assert_equal(impl.refine(**changed)[~outside], before[~outside])


@pytest.mark.spec("HubKV-15")
@given(refinement_inputs(hub_settings))
def test_the_gate_takes_the_share_removed_unless_told_otherwise(impl, x):
    tokens = x["scored"].scores.shape[-1]
    ratio = 1 - x["keep"] / max(1, tokens)
    assert_equal(impl.refine(**x), impl.refine(**x, ratio=ratio))
