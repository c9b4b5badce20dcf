"""Other correct ways to refine scores."""

from spec_tests.variants.registry import register_variant


@register_variant("shift_scores")
def by_sorting(scores):
    """Sort the scores, and subtract the first."""
    return scores - scores.sort(-1).values[..., :1] if scores.numel() else scores + 0
