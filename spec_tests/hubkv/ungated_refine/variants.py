"""Other correct ways to refine without the gate."""

import reference
from spec_tests.variants.registry import register_variant


@register_variant("ungated_refine")
def at_full_ratio(
    scores, protected=None, radius=2, gamma=0.5, tau=0.5, minimum=0.8, maximum=1.2, epsilon=1e-6
):
    """Refine at ratio 1."""
    return reference.hubkv_refine(
        scores, 1.0, protected, radius, gamma, tau, minimum, maximum, epsilon=epsilon
    )


@register_variant("ungated_refine", "values")
def step_by_step(
    scores, protected=None, radius=2, gamma=0.5, tau=0.5, minimum=0.8, maximum=1.2, epsilon=1e-6
):
    """Discount and calibrate."""
    beta = reference.head_weights(
        reference.selectivity(scores, protected, epsilon), tau, minimum, maximum
    )
    corrected = beta[..., None] * reference.smd(scores, radius, gamma, protected)
    return corrected if protected is None else corrected.masked_fill(protected, 1)
