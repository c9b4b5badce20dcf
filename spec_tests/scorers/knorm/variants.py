"""Other ways to compute the length of keys."""

# pyright: reportArgumentType=false

import numpy as np
import torch

from reference import Scored
from spec_tests.numpy_adapter import among_tensors
from spec_tests.scorers.dense_attention import real
from spec_tests.variants.registry import register_variant


@register_variant("knorm")
def by_norm(keys, valid=None, shift=False):
    """Use the norm, at least in float32."""
    scores = -keys.to(torch.promote_types(keys.dtype, torch.float32)).norm(dim=-1)
    mask = real(valid, keys)[..., None, :]
    scores = scores.masked_fill(~mask, 0)
    if shift and scores.shape[-1]:
        scores = (scores - scores.amin(-1, keepdim=True)).masked_fill(~mask, 0)
    return Scored(scores, torch.zeros_like(scores, dtype=torch.bool))


@register_variant("knorm")
def by_products(keys, valid=None, shift=False):
    """Multiply each key with itself."""
    keys = keys.to(torch.promote_types(keys.dtype, torch.float32))
    lengths = torch.einsum("...d,...d->...", keys, keys).sqrt() * real(valid, keys)[..., None, :]
    longest = lengths.amax(-1, keepdim=True) if shift and lengths.shape[-1] else 0
    scores = (longest - lengths) * real(valid, keys)[..., None, :]
    return Scored(scores, torch.zeros_like(scores, dtype=torch.bool))


@register_variant("knorm", "values")
@among_tensors
def with_numpy(keys, valid=None, shift=False):
    """Use NumPy arrays."""
    lengths = np.linalg.norm(keys.astype(np.promote_types(keys.dtype, np.float32)), axis=-1)
    mask = np.ones_like(lengths, bool) if valid is None else valid[..., None, :]
    lengths = np.where(mask, lengths, 0)
    scores = np.where(mask, (lengths.max(-1, keepdims=True) if shift else 0) - lengths, 0)
    return Scored(scores.astype(lengths.dtype), np.zeros_like(lengths, bool))
