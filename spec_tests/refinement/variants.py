"""Other correct ways to refine by any settings."""

from typing import Any

import torch

import reference
from spec_tests.variants.registry import register_variant


def wide(scores):
    """Return scores in float32, or unchanged if they are float64."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


@register_variant("refine")
def by_its_name(scored, refinement=None, *, keep, ratio=None, keys=None, values=None, queries=None):
    """Choose the function by the name of the settings' type, and pass them as arguments."""
    scores, outside = wide(scored.scores), scored.protected
    removed = 1 - keep / max(1, scores.shape[-1]) if ratio is None else ratio
    vectors: Any = dict(keys=keys, queries=queries, values=values)
    calls = {
        "HubSettings": lambda **x: reference.hubkv_refine(scores, max(0.0, removed), outside, **x),
        "GraphSettings": lambda **x: reference.graphkv_refine(
            scores, keep=keep, protected=outside, **vectors, **x
        ),
        "NmsSettings": lambda **x: reference.nms(scores.masked_fill(outside, 0), **x),
    }
    if refinement is None:
        return scores.clone()
    return calls[type(refinement).__name__](**refinement._asdict())
