"""Other ways to run FastKVzip's gate."""

from spec_tests.scorers.variants_common import accumulation_dtype, real
from spec_tests.variants.registry import register_variant


@register_variant("fastkvzip_loss")
def by_logarithms(scores, targets, valid=None):
    """Compute logarithms of at least −100."""
    dtype = accumulation_dtype(scores, targets)
    s, t = scores.to(dtype), targets.to(dtype)
    terms = t * s.log().clamp(min=-100) + (1 - t) * (1 - s).log().clamp(min=-100)
    mask = real(valid, scores[..., None]).to(dtype)
    return -(terms * mask[..., None, :]).sum() / mask.sum()
