"""Other correct ways to compute the second singular value, and the bound."""

from spec_tests.variants.registry import register_variant


@register_variant("ramanujan_bound")
def by_powers(token_degree, channel_degree):
    """Use powers of one half."""
    return (channel_degree - 1) ** 0.5 + (token_degree - 1) ** 0.5
