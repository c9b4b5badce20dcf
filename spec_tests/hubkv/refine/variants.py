"""Other correct ways to refine scores."""

import torch

import reference
from spec_tests.numpy_adapter import among_tensors
from spec_tests.variants.registry import register_variant


@register_variant("protected_mask")
def by_slices(tokens, sinks=4, recent=None):
    """Set both ends to true."""
    mask = torch.zeros(tokens, dtype=torch.bool)
    mask[:sinks] = True
    mask[max(0, tokens - (tokens // 50 if recent is None else recent)) :] = True
    return mask


@register_variant("protected_mask", "values")
def token_by_token(tokens, sinks=4, recent=None):
    """Test each token; a fiftieth is 0.02."""
    recent = int(0.02 * tokens) if recent is None else recent
    return torch.tensor(
        [i < sinks or tokens - i <= recent for i in range(tokens)], dtype=torch.bool
    )


@register_variant("hubkv_refine")
def by_two_factors(
    scores, ratio, protected=None, radius=2, gamma=0.5, tau=0.5,
    minimum=0.8, maximum=1.2, power=2.0, epsilon=1e-6,
):  # fmt: skip
    """Multiply each score by one of two factors of its head in float64, and round once."""
    wide = scores.double()
    spread = reference.selectivity(wide, protected, epsilon)
    beta = reference.head_weights(spread, tau, minimum, maximum)[..., None]
    hubs = reference.hub_mask(wide, radius, protected)
    share = torch.where(hubs, 1, gamma * torch.ones_like(wide))
    strength = ratio**power
    refined = (1 - strength + strength * beta * share) * wide
    return (refined if protected is None else refined.masked_fill(protected, 1)).to(scores.dtype)


@register_variant("hubkv_refine", "values")
def step_by_step(
    scores, ratio, protected=None, radius=2, gamma=0.5, tau=0.5,
    minimum=0.8, maximum=1.2, power=2.0, epsilon=1e-6,
):  # fmt: skip
    """Apply the four equations one after another."""
    discounted = reference.smd(scores, radius, gamma, protected)
    c = reference.selectivity(scores, protected, epsilon)
    corrected = reference.calibrate(discounted, reference.head_weights(c, tau, minimum, maximum))
    strength = ratio**power
    z = (1 - strength) * scores + strength * corrected
    return z if protected is None else torch.where(protected, torch.ones_like(z), z)


@register_variant("shift_scores")
def by_sorting(scores):
    """Sort the scores, and subtract the first."""
    return scores - scores.sort(-1).values[..., :1] if scores.numel() else scores + 0


@register_variant("shift_scores", "values")
@among_tensors
def by_numpy(scores):
    """Use NumPy's `min`."""
    return scores - scores.min(-1, keepdims=True)
