"""Other correct ways to analyse keys."""

from spec_tests.variants.registry import register_variant


@register_variant("kv_bytes")
def part_by_part(tokens, layers=32, heads=8, width=128, element_bytes=2):
    """Multiply from a head to a layer, a token and all tokens; then double."""
    head = width * element_bytes
    return (tokens * (layers * (heads * head))) * 2
