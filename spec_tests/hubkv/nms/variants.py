"""Other correct ways to suppress all but the local maxima."""

import torch

import reference
from spec_tests.variants.registry import register_variant


@register_variant("nms")
def by_hubs(scores, radius=3, factor=0.3):
    """Multiply by 1 at hubs, and by the factor elsewhere."""
    factors = factor * torch.ones_like(scores, dtype=torch.float64)
    factors[reference.hub_mask(scores, radius)] = 1
    return (scores * factors).to(scores.dtype)


@register_variant("nms", "values")
def window_by_window(scores, radius=3, factor=0.3):
    """A maximum has only smaller scores before it in its window, and no larger ones after it."""
    out = scores.clone()
    for i in range(scores.shape[-1]):
        before, after = scores[..., max(0, i - radius) : i], scores[..., i + 1 : i + radius + 1]
        mine = scores[..., i, None]
        peak = (before < mine).all(-1) & (after <= mine).all(-1)
        out[..., i] = torch.where(peak, scores[..., i], factor * scores[..., i])
    return out
