"""Other correct ways to choose degrees and to draw expanders."""

from fractions import Fraction

import reference
from spec_tests.variants.registry import register_variant


@register_variant("biregular_degrees", "values")
def by_products(tokens, channels, density, near=False):
    """Round the density times the number of channels, and divide the edges among channels."""
    share = Fraction(str(density)).limit_denominator(10**6)
    token = round(share * channels)
    if not near and (share * channels != token or (tokens * token) % channels):
        raise ValueError(f"density must give whole degrees, got {density}")
    channel = tokens * token // channels
    if not near and min(token, channel) < 3:
        raise ValueError(f"density must give degrees of at least 3, got {density}")
    return reference.Degrees(token, channel)
