"""Other correct ways to find hubs, and to discount the other tokens."""

import numpy as np
import torch
import torch.nn.functional as F

from spec_tests.numpy_adapter import among_tensors
from spec_tests.variants.registry import register_variant


@register_variant("hub_mask")
def by_comparison(scores, radius=2, protected=None):
    """Compare each token with every rival of its window."""
    hidden = scores if protected is None else scores.masked_fill(protected, -torch.inf)
    at = torch.arange(scores.shape[-1], device=scores.device)
    near = (at[:, None] - at).abs() <= radius
    mine, theirs = hidden[..., :, None], hidden[..., None, :]
    beaten = near & ((theirs > mine) | ((theirs == mine) & (at < at[:, None])))
    return ~beaten.any(-1) & (hidden > -torch.inf)


@register_variant("hub_mask", "values")
def by_max_pool(scores, radius=2, protected=None):
    """Compare with the maximum of each window; then keep the first of equal hubs."""
    hidden = scores if protected is None else scores.masked_fill(protected, -torch.inf)
    rows = hidden.reshape(-1, 1, hidden.shape[-1]).float()
    radius = min(radius, hidden.shape[-1])
    pooled = F.max_pool1d(rows, 2 * radius + 1, stride=1, padding=radius)
    hubs = ((rows == pooled) & (rows > -torch.inf))[:, 0]
    for row, values in zip(hubs, rows[:, 0], strict=True):
        for i in row.nonzero().flatten().tolist():
            if (values[max(0, i - radius) : i] == values[i]).any():
                row[i] = False
    return hubs.reshape(scores.shape)


@register_variant("hub_mask")
def by_windows(scores, radius=2, protected=None):
    """Unfold the windows; a hub's first maximum is in the middle."""
    if not scores.numel():
        return torch.zeros_like(scores, dtype=torch.bool)
    hidden = scores if protected is None else scores.masked_fill(protected, -torch.inf)
    radius = min(radius, scores.shape[-1])
    windows = F.pad(hidden, (radius, radius), value=-torch.inf).unfold(-1, 2 * radius + 1, 1)
    return (windows.argmax(-1) == radius) & (hidden > -torch.inf)


@register_variant("discount", "values")
def as_printed(scores, hubs, gamma=0.5):
    """Evaluate the paper's sum, with a mask of 0 and 1."""
    return hubs * scores + ~hubs * gamma * scores


@register_variant("discount")
def by_factors(scores, hubs, gamma=0.5):
    """Multiply by a factor of 1 or gamma."""
    exact = torch.promote_types(scores.dtype, torch.float32)
    factors = torch.full_like(scores, gamma, dtype=exact).masked_fill(hubs, 1)
    return (scores * factors).to(scores.dtype)


@register_variant("smd", "values")
@among_tensors
def by_loops(scores, radius=2, gamma=0.5, protected=None):
    """Loop over tokens in NumPy."""
    out = np.array(scores)
    for head in np.ndindex(scores.shape[:-1]):
        row = scores[head].astype(float)
        aside = np.zeros(len(row), bool) if protected is None else protected[head]
        row[aside] = -np.inf
        for i in np.flatnonzero(~aside):
            start = max(0, i - radius)
            if start + row[start : i + radius + 1].argmax() != i:
                out[head][i] = gamma * row[i]
    return out


@register_variant("smd")
def at_once(scores, radius=2, gamma=0.5, protected=None):
    """Find hubs by comparison; protected tokens keep their score."""
    hubs = by_comparison(scores, radius, protected)
    keeps = hubs if protected is None else hubs | protected
    return torch.where(keeps, scores, gamma * scores)
