"""Refinement by name, by vectorised functions."""

from torch import Tensor

from optimized.vector.graphkv.refine import graphkv_refine
from optimized.vector.hubkv.nms import nms
from optimized.vector.hubkv.refine import hubkv_refine
from reference.graphkv.refine import GraphSettings, covers_window
from reference.hubkv.nms import NmsSettings
from reference.hubkv.refine import HubSettings
from reference.precision import widen
from reference.refinement import Refinement
from reference.scorers.scored import Scored


def refine(
    scored: Scored,
    refinement: Refinement | None,
    *,
    keep: int,
    ratio: float | None,
    keys: Tensor | None,
    values: Tensor | None,
    queries: Tensor | None,
) -> Tensor:
    scores, outside = widen(scored.scores), scored.protected
    if isinstance(refinement, HubSettings):
        if ratio is None:
            ratio = max(0.0, 1 - keep / max(1, scores.shape[-1]))
        return hubkv_refine(scores, ratio, outside, *refinement)
    if isinstance(refinement, NmsSettings):
        # all scores are at least 0, so that a 0 suppresses no other score
        return nms(scores.masked_fill(outside, 0), *refinement)
    if isinstance(refinement, GraphSettings):
        assert keys is not None
        covers_window(keep, outside, refinement.per_head, refinement.exclude_window)
        vectors = dict(queries=queries, values=values)
        settings = refinement._asdict()
        return graphkv_refine(scores, keys, keep, protected=outside, **vectors, **settings)
    return scores.clone()
