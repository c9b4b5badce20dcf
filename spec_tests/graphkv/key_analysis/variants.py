"""Other correct ways to analyse keys."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import reference
from spec_tests.numpy_adapter import among_tensors
from spec_tests.variants.registry import register_variant


@register_variant("cosine_matrix", "values")
def by_normalising(keys):
    """Multiply the matrix of keys of length 1 by its transpose."""
    keys = F.normalize(keys, dim=-1)
    return keys @ keys.mT


@register_variant("cosine_matrix")
def by_lengths(keys):
    """Divide all inner products by both lengths."""
    dtype = torch.promote_types(keys.dtype, torch.float32)
    keys = keys.double()
    lengths = keys.norm(dim=-1)
    lengths = lengths[..., :, None] * lengths[..., None, :]
    inner = torch.einsum("...id,...jd->...ij", keys, keys)
    return torch.where(lengths > 0, inner / lengths, 0).clamp(-1, 1).to(dtype)


@register_variant("cosine_distribution")
def pair_by_pair(keys, bins=50):
    """Loop over pairs of tokens, and count for each bin."""
    matrix = reference.cosine_matrix(keys)
    tokens, lead = matrix.shape[-1], matrix.shape[:-2]
    pairs = [matrix[..., i, j] for i in range(tokens) for j in range(i + 1, tokens)]
    pairs = torch.stack(pairs, -1) if pairs else matrix.new_zeros(*lead, 0)
    count = max(1, pairs.shape[-1])
    mean = pairs.sum(-1) / count
    variance = ((pairs - mean[..., None]) ** 2).sum(-1) / count
    place = ((pairs.double() + 1) / 2 * bins).floor().clamp(max=bins - 1).long()
    return reference.CosineDistribution(mean, variance, F.one_hot(place, bins).sum(-2))


record: Any = reference.CosineDistribution  # tensors, or arrays


@register_variant("cosine_distribution", "values")
@among_tensors
def by_numpy(keys, bins=50):
    """Use NumPy's `histogram` on the upper triangle."""
    lengths = np.linalg.norm(keys, axis=-1, keepdims=True)
    keys = keys / np.where(lengths > 0, lengths, 1)
    matrix = keys @ np.swapaxes(keys, -1, -2)
    pairs = matrix[..., *np.triu_indices(matrix.shape[-1], 1)]
    lead = pairs.shape[:-1]
    counts = np.zeros((*lead, bins), np.int64)
    for head in np.ndindex(lead):
        counts[head] = np.histogram(pairs[head].clip(-1, 1), bins, (-1, 1))[0]
    if not pairs.shape[-1]:
        return record(*np.zeros((2, *lead), keys.dtype), counts)
    return record(pairs.mean(-1), pairs.var(-1), counts)


def pointed(axes):
    """Flip axes, which are columns, so that the largest coordinate of each is positive."""
    largest = axes.abs().argmax(-2, keepdim=True)
    return axes * axes.gather(-2, largest).sign()


@register_variant("principal_components")
def by_singular_values(keys, components=2):
    """Take the right singular vectors of the centred keys."""
    dtype = torch.promote_types(keys.dtype, torch.float32)
    if not keys.numel():
        return torch.zeros(*keys.shape[:-1], components, dtype=dtype)
    centred = keys.double() - keys.double().mean(-2, keepdim=True)
    axes = torch.linalg.svd(centred).Vh.mT[..., :components]
    return (centred @ pointed(axes)).to(dtype)


@register_variant("principal_components", "values")
def by_covariance(keys, components=2):
    """Take NumPy's eigenvectors, largest eigenvalue first."""
    out = torch.zeros(*keys.shape[:-1], components, dtype=keys.dtype)
    for head in np.ndindex(keys.shape[:-2]) if keys.numel() else ():
        rows = keys[head].double().numpy()
        rows = rows - rows.mean(0)
        values, axes = np.linalg.eigh(rows.T @ rows)
        first = np.argsort(values)[::-1][:components]
        axes = pointed(torch.from_numpy(axes[:, first].copy()))
        out[head] = torch.from_numpy(rows) @ axes
    return out


@register_variant("kv_bytes")
def part_by_part(tokens, layers=32, heads=8, width=128, element_bytes=2):
    """Multiply from a head to a layer, a token and all tokens; then double."""
    head = width * element_bytes
    return (tokens * (layers * (heads * head))) * 2
