"""Other correct ways to mix raw and corrected scores."""

import torch

from spec_tests.variants.registry import register_variant


@register_variant("gate")
def by_lerp(scores, corrected, ratio, power=2.0):
    """Interpolate."""
    wide = torch.promote_types(scores.dtype, torch.float32)
    return torch.lerp(scores.to(wide), corrected.to(wide), ratio**power).to(scores.dtype)


@register_variant("gate", "values")
def by_difference(scores, corrected, ratio, power=2.0):
    """Add a part of the difference to the scores."""
    return scores + ratio**power * (corrected - scores)
