"""Other correct ways to compute statistics and weights of heads."""

import numpy as np
import torch

from spec_tests.numpy_adapter import among_tensors
from spec_tests.variants.registry import register_variant


@register_variant("selectivity")
def by_masked_sums(scores, protected=None, epsilon=1e-6):
    """Sum over the content of all heads at once, and divide by the number of tokens."""
    scores = scores if scores.dtype == torch.float64 else scores.float()
    inside = torch.ones_like(scores) if protected is None else (~protected).to(scores.dtype)
    count = inside.sum(-1, keepdim=True).clamp(min=1)
    mean = (scores * inside).sum(-1, keepdim=True) / count
    variance = ((scores - mean) ** 2 * inside).sum(-1, keepdim=True) / count
    scale = mean + epsilon
    return torch.where(scale > 0, variance.sqrt() / scale, 0)[..., 0]


@register_variant("selectivity", "values")
@among_tensors
def by_numpy(scores, protected=None, epsilon=1e-6):
    """Divide `std` by `mean`, one row at a time."""
    out = np.zeros(scores.shape[:-1], scores.dtype)
    for head in np.ndindex(out.shape):
        row = scores[head] if protected is None else scores[head][~protected[head]]
        if row.size and row.mean() + epsilon > 0:
            out[head] = row.std() / (row.mean() + epsilon)
    return out


@register_variant("head_weights", "values")
def as_printed(selectivity, tau=0.5, minimum=0.8, maximum=1.2):
    """Evaluate the paper's formula where a head is selective."""
    c = selectivity
    weights = torch.clip((c / c.mean(-1, keepdim=True)) ** tau, minimum, maximum)
    return torch.where((c == 0).all(-1, keepdim=True), min(max(1.0, minimum), maximum), weights)


@register_variant("head_weights")
def by_logarithms(selectivity, tau=0.5, minimum=0.8, maximum=1.2):
    """Compute the power as the exponential of a logarithm, in float64."""
    if tau == 0:
        powers = torch.ones_like(selectivity, dtype=torch.float64)
    else:
        c = selectivity.double()
        total = c.sum(-1, keepdim=True)
        share = torch.where(total > 0, c * c.shape[-1] / total, 1)
        powers = (tau * share.log()).exp()
    weights = powers.clamp(min=minimum).clamp(max=maximum)
    return weights if selectivity.dtype == torch.float64 else weights.float()


@register_variant("calibrate")
def by_einsum(scores, weights):
    """Multiply by einsum in float64."""
    products = torch.einsum("...t,...->...t", scores.double(), weights.double())
    return products.to(scores.dtype)


@register_variant("calibrate", "values")
def head_by_head(scores, weights):
    """Loop over heads."""
    out = torch.empty_like(scores)
    for row, score, weight in zip(
        out.view(-1, out.shape[-1]),
        scores.reshape(-1, out.shape[-1]),
        weights.flatten(),
        strict=True,
    ):
        row.copy_(weight * score)
    return out
