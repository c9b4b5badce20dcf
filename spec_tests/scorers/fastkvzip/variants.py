"""Another way to compute the loss of FastKVzip's gate."""

import torch

from spec_tests.variants.registry import register_variant


@register_variant("fastkvzip_loss")
def by_logarithms(scores, targets, valid=None):
    """Compute logarithms of at least −100."""
    dtype = torch.promote_types(torch.promote_types(scores.dtype, targets.dtype), torch.float32)
    s, t = scores.to(dtype), targets.to(dtype)
    terms = t * s.log().clamp(min=-100) + (1 - t) * (1 - s).log().clamp(min=-100)
    mask = torch.ones_like(s[..., 0, :]) if valid is None else valid.to(dtype)
    return -(terms * mask[..., None, :]).sum() / mask.sum()
