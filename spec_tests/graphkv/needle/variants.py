"""Other correct ways to hide a needle and to measure its recall."""

from decimal import Decimal

import torch

from spec_tests.variants.registry import register_variant


@register_variant("hide_needle")
def by_inserting(haystack, needle, length, depth):
    """Insert into a list."""
    text = haystack[: length - len(needle)].tolist()
    position = int(Decimal(str(depth)) * len(text))
    text[position:position] = needle.tolist()
    return torch.tensor(text, dtype=torch.int64)
