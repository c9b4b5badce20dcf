"""Other correct ways to measure the locality of importance."""

import numpy as np
import torch

from spec_tests.numpy_adapter import among_tensors
from spec_tests.variants.registry import register_variant


def wide(x):
    """Return a tensor in float32, or unchanged if it is float64."""
    return x if x.dtype == torch.float64 else x.float()


@register_variant("autocorrelation")
def in_double(values, distances):
    """Centre in float64, and multiply shifted rows, one distance at a time."""
    n, x = values.shape[-1], values.double()
    flat = (values == values[..., :1]).all(-1)
    x = x - x.mean(-1, keepdim=True)
    rows = [
        torch.einsum("...i,...i->...", x[..., : n - d], x[..., d:]) for d in range(distances + 1)
    ]
    sums = torch.stack([row / (n - d) for d, row in enumerate(rows)], -1)
    found = torch.where(flat[..., None], 0, sums / sums[..., :1])
    return found.to(wide(values).dtype)


@register_variant("autocorrelation", "values")
@among_tensors
def by_correlate(values, distances):
    """Use NumPy's `correlate`; return 0 where the variance is 0."""
    out = np.zeros((*values.shape[:-1], distances + 1), values.dtype)
    n = values.shape[-1]
    for row in np.ndindex(values.shape[:-1]):
        x = values[row] - values[row].mean()
        if (x**2).sum() > 0:
            sums = np.correlate(x, x, "full")[n - 1 : n + distances]
            out[row] = sums / (n - np.arange(distances + 1)) / (x**2).mean()
    return out


@register_variant("distance_profile")
def by_diagonals(weights, distances=128):
    """Average the diagonal of each distance."""
    queries, tokens = weights.shape[-2:]
    lines = [wide(weights).diagonal(tokens - queries - d, -2, -1) for d in range(distances + 1)]
    return torch.stack([line.mean(-1) for line in lines], -1)


@register_variant("distance_profile", "values")
def by_adding_up(weights, distances=128):
    """Add every pair to the sum of its distance."""
    queries, tokens = weights.shape[-2:]
    apart = torch.arange(tokens - queries, tokens)[:, None] - torch.arange(tokens)
    means = [
        (weights * (apart == d)).sum((-2, -1)) / (apart == d).sum() for d in range(distances + 1)
    ]
    return torch.stack(means, -1)


def inside(tokens):
    """Mark the content with the paper's defaults."""
    return torch.tensor([4 <= i < tokens - tokens // 50 for i in range(tokens)], dtype=torch.bool)


@register_variant("attention_density")
def by_selected_queries(weights, content=None):
    """Average the rows of the content's queries."""
    queries, tokens = weights.shape[-2:]
    content = inside(tokens) if content is None else content
    return wide(weights)[..., content[tokens - queries :], :].mean(-2)


@register_variant("attention_density", "values")
def by_a_product(weights, content=None):
    """Multiply by the mask of queries, and divide by their number."""
    queries, tokens = weights.shape[-2:]
    content = inside(tokens) if content is None else content
    asked = content[tokens - queries :].to(weights.dtype)
    return asked @ weights / asked.sum()


@register_variant("content_series")
def by_slicing(values, trimmed=0, sinks=4, recent=None):
    """Slice from the first to the last token of the content."""
    tokens = values.shape[-1]
    end = tokens - (tokens // 50 if recent is None else recent)
    return values[..., min(sinks + trimmed, tokens) : max(end, 0)]


@register_variant("content_series", "values")
def by_positions(values, trimmed=0, sinks=4, recent=None):
    """List the positions of the content."""
    tokens = values.shape[-1]
    recent = int(0.02 * tokens) if recent is None else recent
    return values[..., [i for i in range(tokens) if sinks <= i < tokens - recent][trimmed:]]
